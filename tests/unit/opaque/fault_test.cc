// Faults on demand: numbers that go wrong, questions refused, work that takes long, statuses nobody knows.
#include <chrono>

#include "rig.h"
#include "tests/unit/device/runs.h"

namespace backplane {
namespace {

using test::Rig;
using Floats = std::vector<float>;

TEST(OpaqueFaultTest, NanBeginsTheResultOfOneOp) {
  Rig rig("nan_at=2");
  rig.twice();
  EXPECT_EQ(rig.sync(), BP_OK);
  EXPECT_EQ(rig.get(), (Floats{2, 4, 6, 8}));
  rig.twice();
  EXPECT_EQ(rig.sync(), BP_OK) << "nothing failed";
  const Floats wrong = rig.get();
  EXPECT_TRUE(std::isnan(wrong[0]));
  EXPECT_EQ(Floats(wrong.begin() + 1, wrong.end()), (Floats{8, 12, 16}));
  rig.set({1, 1, 1, 1});
  rig.twice();
  EXPECT_EQ(rig.sync(), BP_OK);
  EXPECT_EQ(rig.get(), (Floats{2, 2, 2, 2})) << "only once";
}

TEST(OpaqueFaultTest, NanInALaunch) {
  Rig rig("nan_at=2");
  bp_graph graph = nullptr;
  rig.begin();
  rig.twice();
  ASSERT_EQ(rig.end(graph), BP_OK);
  EXPECT_EQ(rig.launch(graph), BP_OK);
  EXPECT_EQ(rig.sync(), BP_OK);
  EXPECT_EQ(rig.get()[0], 2);
  EXPECT_EQ(rig.launch(graph), BP_OK);
  EXPECT_EQ(rig.sync(), BP_OK);
  EXPECT_TRUE(std::isnan(rig.get()[0])) << "recorded once, but it is the second that ran";
  rig.destroy(graph);
}

TEST(OpaqueFaultTest, RefusesOneQuestion) {
  Rig rig("refuse_at=2");
  bp_binary_args args{};
  args.size = sizeof(args);
  args.a = args.b = args.out = rig.tensor();
  args.alpha = 1;
  bp_op_query query{};
  query.size = sizeof(query);
  query.code = BP_OP_ADD;
  query.smallest = query.largest = &args;
  EXPECT_TRUE(rig.device().supports(query).yes);
  const device::Support second = rig.device().supports(query);
  EXPECT_FALSE(second.yes);
  EXPECT_EQ(second.reason, "an injected no");
  EXPECT_TRUE(rig.device().supports(query).yes);
  EXPECT_EQ(rig.report.questions, 3u);
}

TEST(OpaqueFaultTest, WorkTakesAsLongAsAsked) {
  Rig rig("slow=20000");
  const auto start = std::chrono::steady_clock::now();
  rig.twice();
  rig.twice();
  EXPECT_EQ(rig.sync(), BP_OK);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(40)) << "one after the other";
  EXPECT_EQ(rig.get(), (Floats{4, 8, 12, 16}));
}

TEST(OpaqueFaultTest, AnyNumberIsAStatus) {
  for (const bool late : {false, true}) {
    Rig rig("fail_at=8:77,late=" + std::to_string(late));
    ASSERT_EQ(rig.report.calls, 7u);
    EXPECT_EQ(rig.twice(), late ? BP_OK : 77);
    EXPECT_EQ(rig.sync(), late ? 77 : BP_OK);
    EXPECT_EQ(rig.reason(), "injected failure of call 8");
  }
}

// A whole model, with NaN in each op that runs in turn: the request that has it ends with an error, or nobody sees it.
TEST(OpaqueFaultTest, NanEndsARequestAndNotTheModel) {
  test::TempFolder folder;
  const auto path = test::write_tiny_llama(folder, {.layers = 1, .head_dim = 16});
  std::uint64_t ops = 0;
  std::vector<TokenId> expected;
  {
    opaque::Report report;
    const auto model = test::load_on(path, test::open_opaque("opaque:f32", report.option()),
                                     test::policy(device::FallbackPolicy::kDeny));
    expected = test::generate_two(*model);
    ops = report.runs;
  }
  std::uint64_t errors = 0;
  for (std::uint64_t n = 1; n <= ops; ++n) {
    SCOPED_TRACE(n);
    const auto model = test::load_on(path, test::open_opaque("opaque:f32", "nan_at=" + std::to_string(n)),
                                     test::policy(device::FallbackPolicy::kDeny));
    try {
      test::generate_two(*model);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("NaN"), std::string::npos) << error.what();
      ++errors;
    }
    EXPECT_EQ(test::generate_two(*model), expected) << "later requests have pages without NaN";
  }
  EXPECT_GT(errors, ops / 2);
}

}  // namespace
}  // namespace backplane
