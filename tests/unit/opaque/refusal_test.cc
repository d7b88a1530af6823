// What it can't do, by nature or by option, is refused with a reason; and events and copies, which the core leaves
// alone.
#include "rig.h"
#include "tests/support/expect_error.h"
#include "tests/unit/device/runs.h"

namespace backplane {
namespace {

using test::Rig;
using Floats = std::vector<float>;

class OpaqueRefusalTest : public testing::Test {
 protected:
  static bp_status create_kv(Rig& rig, std::uint64_t flags) {
    const std::uint64_t pages[] = {2};
    bp_kv_layer layer{};
    layer.size = sizeof(layer);
    layer.kv_heads = 1;
    layer.head_dim = layer.value_dim = 4;
    bp_kv_desc desc{};
    desc.size = sizeof(desc);
    desc.type = BP_TYPE_F32;
    desc.page_size = 12;
    desc.groups = desc.layer_count = 1;
    desc.pages = pages;
    desc.layers = &layer;
    desc.layer_stride = sizeof(layer);
    desc.flags = flags;
    bp_kv kv = nullptr;
    const bp_status status = rig.call([&](auto& t, bp_device device, bp_stream, bp_context context) {
      return t.kv->create(device, context, &desc, &kv);
    });
    if (kv) rig.device().tables().kv->destroy(rig.device().handle(), kv);
    return status;
  }
  static bp_status pack(Rig& rig, bp_type type, std::uint32_t flags) {
    bp_weight_part part{};
    part.size = sizeof(part);
    part.type = type;
    part.flags = flags;
    part.rows = 2;
    part.columns = 32;
    bp_weight_desc desc{};
    desc.size = sizeof(desc);
    desc.uses = BP_USE_LINEAR;
    desc.parts = &part;
    desc.part_count = 1;
    desc.part_stride = sizeof(part);
    std::uint64_t bytes = 0;
    return rig.call([&](auto& t, bp_device device, bp_stream, bp_context context) {
      return t.weights->packed_bytes(device, context, &desc, &bytes);
    });
  }
};

TEST_F(OpaqueRefusalTest, FlagsOfTheFuture) {
  Rig rig;
  EXPECT_EQ(create_kv(rig, 0), BP_OK);
  EXPECT_EQ(create_kv(rig, 1), BP_UNSUPPORTED);
  EXPECT_EQ(rig.reason(), "an unknown flag of a KV cache");
  EXPECT_EQ(pack(rig, BP_TYPE_F32, BP_WEIGHT_TRANSPOSED), BP_OK);
  EXPECT_EQ(pack(rig, BP_TYPE_F32, 2), BP_UNSUPPORTED);
  EXPECT_EQ(rig.reason(), "an unknown flag of a weight's part");
}

TEST_F(OpaqueRefusalTest, OnlyTheTypesOfTheList) {
  Rig rig("import=F32+Q8_0");
  EXPECT_EQ(pack(rig, BP_TYPE_F32, 0), BP_OK);
  EXPECT_EQ(pack(rig, BP_TYPE_Q8_0, 0), BP_OK);
  EXPECT_EQ(pack(rig, BP_TYPE_Q4_0, 0), BP_UNSUPPORTED);
}

TEST_F(OpaqueRefusalTest, OptionalFunctionsOfBuffers) {
  const auto copy = [](Rig& rig) {
    const bp_buffer buffer = rig.tensor().buffer;
    const bp_status status =
        rig.call([&](auto& t, auto... at) { return t.buffer->copy(at..., buffer, 8, buffer, 0, 8); });
    EXPECT_EQ(rig.sync(), BP_OK);
    return status;
  };
  Rig able;
  EXPECT_EQ(copy(able), BP_OK);
  EXPECT_EQ(able.get(), (Floats{1, 2, 1, 2}));
  Rig unable("no_copy=1");
  EXPECT_EQ(copy(unable), BP_UNSUPPORTED);
  EXPECT_EQ(unable.get(), (Floats{1, 2, 3, 4}));
  EXPECT_TRUE(test::open_opaque("opaque:f32", "visible=1")->host_visible());
  EXPECT_FALSE(test::open_opaque("opaque:f32", "visible=1,no_map=1")->host_visible());
  std::vector<std::byte> memory(64);
  EXPECT_TRUE(test::open_opaque("opaque:f32", "visible=1")->import_host(memory, true));
  EXPECT_FALSE(test::open_opaque("opaque:f32", "visible=1,no_import=1")->import_host(memory, true));
}

TEST_F(OpaqueRefusalTest, FusedOpsForSomeShapesOnly) {
  test::TempFolder folder;
  const auto asked = [&](std::uint32_t head_dim) {
    opaque::Report report;
    const auto model =
        test::load_on(test::write_tiny_llama(folder, {.layers = 1, .head_dim = head_dim}),
                      test::open_opaque("opaque:f32", report.option()), test::policy(device::FallbackPolicy::kDeny));
    std::vector<engine::ScoreLine> lines{{test::tokens_of(3, 1), {}}};
    engine::Scorer(*model).score(lines, {}, [](const engine::ScoredRows&) {});
    return report.runs.load();
  };
  EXPECT_EQ(asked(8), asked(16) + 6) << "the norm, q, k, v, two rotations and the write are one op or seven";
}

TEST_F(OpaqueRefusalTest, AlignmentIsWhatTheOptionSays) {
  EXPECT_EQ(test::open_opaque()->caps().alignment, 256u);
  EXPECT_EQ(test::open_opaque("opaque:f32", "alignment=4096")->caps().alignment, 4096u);
  EXPECT_ERROR(test::open_opaque("opaque:f32", "alignment=100"), ErrorCode::kDevice, "isn't a power of two");
}

TEST_F(OpaqueRefusalTest, OptionsThatMakeNoSense) {
  for (const char* options : {"nonsense=1", "slow=soon", "nan_at=", "fail_at=3:", "no_graph"}) {
    SCOPED_TRACE(options);
    EXPECT_ERROR(test::open_opaque("opaque:f32", options), ErrorCode::kDevice, "option");
  }
}

// An event after work that failed is reached nevertheless: who waits for it must not wait for ever.
TEST_F(OpaqueRefusalTest, EventsAreReachedAfterAFailureToo) {
  Rig rig("slow=1000");
  const bp_stream_table& table = *rig.device().tables().stream;
  bp_event event = nullptr;
  AbiCall call;
  ASSERT_EQ(table.event_create(rig.device().handle(), call.context(), &event), BP_OK);
  EXPECT_EQ(table.event_sync(rig.device().handle(), call.context(), event), BP_OK) << "never recorded";
  const std::vector<float> bytes(8);
  const bp_buffer buffer = rig.tensor().buffer;
  EXPECT_EQ(rig.call([&](auto& t, auto... at) { return t.buffer->upload(at..., buffer, 0, bytes.data(), 32); }), BP_OK)
      << "beyond the end, which shows late";
  EXPECT_EQ(rig.call([&](auto& t, auto... at) { return t.stream->event_record(at..., event); }), BP_OK);
  EXPECT_EQ(table.event_wait(rig.device().handle(), rig.device().stream(), call.context(), event), BP_OK);
  EXPECT_EQ(table.event_sync(rig.device().handle(), call.context(), event), BP_OK);
  EXPECT_EQ(rig.get(), (Floats{1, 2, 3, 4})) << "on the stream that waited";
  EXPECT_EQ(rig.sync(), BP_INVALID);
  table.event_destroy(rig.device().handle(), event);
  EXPECT_EQ(rig.report.misuse, 0u);
}

TEST_F(OpaqueRefusalTest, APreparedOpOfAnotherKindIsMisuse) {
  Rig rig;
  bp_binary_args args{};
  args.size = sizeof(args);
  args.a = args.b = args.out = rig.tensor();
  args.alpha = 1;
  bp_op_query query{};
  query.size = sizeof(query);
  query.code = BP_OP_ADD;
  query.smallest = query.largest = &args;
  bp_op op{};
  op.size = sizeof(op);
  op.code = BP_OP_ADD;
  op.args = &args;
  op.prepared = rig.device().prepare(query);
  ASSERT_NE(op.prepared, nullptr);
  rig.device().run(op);
  EXPECT_EQ(rig.report.misuse, 0u);
  op.code = BP_OP_MUL;
  rig.device().run(op);
  EXPECT_EQ(rig.report.misuse, 1u);
  rig.device().sync();
  rig.device().unprepare(op.prepared);
  EXPECT_EQ(rig.get(), (Floats{4, 16, 36, 64}));
}

}  // namespace
}  // namespace backplane
