// Recorded work: when it runs, what ends a recording, and what is left of one that failed.
#include "rig.h"

namespace backplane {
namespace {

using test::Rig;
using Floats = std::vector<float>;

TEST(OpaqueGraphTest, RunsAtEachLaunchAndNotBefore) {
  Rig rig;
  bp_graph graph = nullptr;
  ASSERT_EQ(rig.begin(), BP_OK);
  EXPECT_EQ(rig.twice(), BP_OK);
  EXPECT_EQ(rig.twice(), BP_OK);
  ASSERT_EQ(rig.end(graph), BP_OK);
  EXPECT_EQ(rig.sync(), BP_OK);
  EXPECT_EQ(rig.get(), (Floats{1, 2, 3, 4}));
  EXPECT_EQ(rig.report.recorded, 2u);
  EXPECT_EQ(rig.report.runs, 0u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(rig.launch(graph), BP_OK);
  EXPECT_EQ(rig.sync(), BP_OK);
  EXPECT_EQ(rig.get(), (Floats{64, 128, 192, 256}));
  EXPECT_EQ(rig.report.launches, 3u);
  rig.set({1, 1, 1, 1});
  EXPECT_EQ(rig.launch(graph), BP_OK);
  EXPECT_EQ(rig.sync(), BP_OK);
  EXPECT_EQ(rig.get(), (Floats{4, 4, 4, 4})) << "what the memory holds then";
  rig.destroy(graph);
}

TEST(OpaqueGraphTest, OtherStreamsRunOn) {
  Rig rig;
  bp_graph graph = nullptr;
  ASSERT_EQ(rig.begin(), BP_OK);
  rig.set({5, 6, 7, 8});  // on the device's own stream
  EXPECT_EQ(rig.get(), (Floats{5, 6, 7, 8}));
  ASSERT_EQ(rig.end(graph), BP_OK);
  rig.destroy(graph);
}

TEST(OpaqueGraphTest, AnUploadBetweenTwoLaunchesIsInOrder) {
  Rig rig("slow=500");
  bp_graph graph = nullptr;
  ASSERT_EQ(rig.begin(), BP_OK);
  rig.twice();
  ASSERT_EQ(rig.end(graph), BP_OK);
  const Floats later{10, 20, 30, 40};
  Floats first(4), second(4);
  const bp_buffer buffer = rig.tensor().buffer;
  const auto download = [&](Floats& to) {
    return rig.call([&](auto& t, auto... at) { return t.buffer->download(at..., buffer, 0, to.data(), 16); });
  };
  EXPECT_EQ(rig.launch(graph), BP_OK);
  EXPECT_EQ(download(first), BP_OK);
  EXPECT_EQ(rig.call([&](auto& t, auto... at) { return t.buffer->upload(at..., buffer, 0, later.data(), 16); }), BP_OK);
  EXPECT_EQ(rig.launch(graph), BP_OK);
  EXPECT_EQ(download(second), BP_OK);
  EXPECT_EQ(rig.sync(), BP_OK);
  EXPECT_EQ(first, (Floats{2, 4, 6, 8}));
  EXPECT_EQ(second, (Floats{20, 40, 60, 80}));
  rig.destroy(graph);
}

// The stream of the rig is usable, and records again.
void expect_usable(Rig& rig) {
  rig.set({1, 2, 3, 4});
  EXPECT_EQ(rig.twice(), BP_OK);
  EXPECT_EQ(rig.sync(), BP_OK) << rig.reason();
  EXPECT_EQ(rig.get(), (Floats{2, 4, 6, 8}));
  bp_graph graph = nullptr;
  ASSERT_EQ(rig.begin(), BP_OK) << rig.reason();
  EXPECT_EQ(rig.twice(), BP_OK);
  ASSERT_EQ(rig.end(graph), BP_OK) << rig.reason();
  EXPECT_EQ(rig.launch(graph), BP_OK);
  EXPECT_EQ(rig.sync(), BP_OK);
  EXPECT_EQ(rig.get(), (Floats{4, 8, 12, 16}));
  rig.destroy(graph);
}

// Calls before the capture: open, caps, the device's stream, the buffer, the stream, upload and its sync.
constexpr std::uint64_t kBefore = 7;

class OpaqueCaptureFaultTest : public testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(OpaqueCaptureFaultTest, LeavesTheStreamUsable) {
  const auto [which, late] = GetParam();  // 1: begin, 2 and 3: ops, 4: end
  Rig rig("fail_at=" + std::to_string(kBefore + which) + ":2,late=" + (late ? "1" : "0"));
  ASSERT_EQ(rig.report.calls, kBefore);
  bp_graph graph = nullptr;
  const bp_status begun = rig.begin();
  EXPECT_EQ(begun, which == 1 && !late ? BP_OUT_OF_MEMORY : BP_OK);
  if (begun == BP_OK) {
    EXPECT_EQ(rig.twice(), which == 2 && !late ? BP_OUT_OF_MEMORY : BP_OK);
    EXPECT_EQ(rig.twice(), which == 3 && !late ? BP_OUT_OF_MEMORY : BP_OK);
    const bool fails = late || which == 4;
    EXPECT_EQ(rig.end(graph), fails ? BP_OUT_OF_MEMORY : BP_OK);
    EXPECT_EQ(graph == nullptr, fails);
    if (graph) rig.destroy(graph);
  }
  EXPECT_EQ(rig.reason(), "injected failure of call " + std::to_string(kBefore + which));
  expect_usable(rig);
}

INSTANTIATE_TEST_SUITE_P(Each, OpaqueCaptureFaultTest, testing::Combine(testing::Range(1, 5), testing::Bool()),
                         [](const auto& each) {
                           return "Call" + std::to_string(std::get<0>(each.param)) +
                                  (std::get<1>(each.param) ? "Late" : "");
                         });

TEST(OpaqueGraphTest, WhatCantBeRecorded) {
  Rig rig("uncapturable=ADD");
  bp_graph graph = nullptr;
  EXPECT_EQ(rig.end(graph), BP_INVALID) << "never began";
  ASSERT_EQ(rig.begin(), BP_OK);
  EXPECT_EQ(rig.begin(), BP_INVALID) << "began already";
  EXPECT_EQ(rig.twice(), BP_INVALID);
  EXPECT_EQ(rig.sync(), BP_INVALID);
  EXPECT_EQ(rig.report.misuse, 2u) << "the op and the sync";
  ASSERT_EQ(rig.end(graph), BP_OK);
  rig.destroy(graph);
  EXPECT_EQ(rig.twice(), BP_OK) << "not while recording";
}

TEST(OpaqueGraphTest, RecordsNothingWhereTheOptionSaysSo) {
  Rig rig("no_graph=1");
  EXPECT_EQ(rig.begin(), BP_UNSUPPORTED);
  EXPECT_EQ(rig.twice(), BP_OK);
}

TEST(OpaqueGraphTest, AGraphThatIsNotDestroyedIsCounted) {
  opaque::Report report;
  {
    const auto device = test::open_opaque("opaque:f32", report.option());
    const bp_graph_table& table = *device->tables().graph;
    AbiCall call;
    ASSERT_EQ(table.capture_begin(device->handle(), device->stream(), call.context()), BP_OK);
    bp_graph graph = nullptr;
    ASSERT_EQ(table.capture_end(device->handle(), device->stream(), call.context(), &graph), BP_OK);
    table.destroy(device->handle(), graph);
    ASSERT_EQ(table.capture_begin(device->handle(), device->stream(), call.context()), BP_OK);
  }
  EXPECT_EQ(report.live, 0u) << "a recording that never ended is the stream's";
}

}  // namespace
}  // namespace backplane
