// Arguments that contradict the header get a status and a reason, never a crash: run under a sanitizer as well.
#include <cmath>
#include <limits>

#include "tests/unit/cpu/paged.h"

namespace backplane::cpu_test {
namespace {

class BadArgumentsTest : public CpuTest {};
INSTANTIATE_TEST_SUITE_P(Devices, BadArgumentsTest, ::testing::Values(0U, 1U), device_name);

// Directly, without asking first, with plenty of workspace.
#define EXPECT_REFUSED(status, code, args)                                         \
  do {                                                                             \
    EXPECT_EQ(rig.run_with(code, args, 1 << 16), bp_status{status}) << rig.reason; \
    EXPECT_FALSE(rig.reason.empty());                                              \
  } while (false)

template <class Change>
void expect_bad_tensor(Rig& rig, const char* what, Change change) {
  bp_scalar_args args{};
  args.value = 2;
  args.x = rig.reals({4, 6});
  args.out = rig.reals({4, 6});
  ASSERT_EQ(rig.run_with(BP_OP_SCALE, args, 0), BP_OK) << rig.reason;
  for (bp_tensor* tensor : {&args.x, &args.out}) {
    const bp_tensor kept = *tensor;
    change(*tensor);
    const bp_status status = rig.run_with(BP_OP_SCALE, args, 0);
    EXPECT_TRUE(status == BP_INVALID || status == BP_UNSUPPORTED) << what << ": " << status;
    EXPECT_NE(rig.reason.find("SCALE"), std::string::npos) << what << ": " << rig.reason;
    *tensor = kept;
  }
}

TEST_P(BadArgumentsTest, Tensors) {
  Rig rig(GetParam());
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  expect_bad_tensor(rig, "no buffer", [](bp_tensor& t) { t.buffer = nullptr; });
  expect_bad_tensor(rig, "offset", [](bp_tensor& t) { t.offset = 8; });
  expect_bad_tensor(rig, "huge offset", [](bp_tensor& t) { t.offset = ~0ull - 7; });
  expect_bad_tensor(rig, "unaligned", [](bp_tensor& t) { t.offset = 1, t.shape[0] = 3; });
  expect_bad_tensor(rig, "shape", [](bp_tensor& t) { t.shape[0] = 5; });
  expect_bad_tensor(rig, "negative", [](bp_tensor& t) { t.shape[0] = -1; });
  expect_bad_tensor(rig, "huge", [](bp_tensor& t) { t.shape[0] = kHuge; });
  expect_bad_tensor(rig, "rank 0", [](bp_tensor& t) { t.rank = 0; });
  expect_bad_tensor(rig, "rank 5", [](bp_tensor& t) { t.rank = 5; });
  expect_bad_tensor(rig, "row stride", [](bp_tensor& t) { t.stride[0] += 8; });
  expect_bad_tensor(rig, "huge stride", [](bp_tensor& t) { t.stride[0] = kHuge; });
  expect_bad_tensor(rig, "negative stride", [](bp_tensor& t) { t.stride[0] = -t.stride[0]; });
  expect_bad_tensor(rig, "unaligned stride", [](bp_tensor& t) { t.stride[0] -= 1; });
  expect_bad_tensor(rig, "innermost stride", [](bp_tensor& t) { t.stride[1] *= 2, t.shape[0] = 1; });
  expect_bad_tensor(rig, "absent", [](bp_tensor& t) { t.type = BP_TYPE_NONE; });
  expect_bad_tensor(rig, "unknown type", [](bp_tensor& t) { t.type = 4000000; });
  expect_bad_tensor(rig, "integers", [](bp_tensor& t) { t.type = BP_TYPE_I32; });
  expect_bad_tensor(rig, "blocks", [](bp_tensor& t) { t.type = BP_TYPE_Q4_0; });
}

TEST_P(BadArgumentsTest, ResultsOnTopOfEachOther) {
  Rig rig(GetParam());
  bp_scalar_args args{};
  args.x = rig.reals({4, 6});
  args.out = rig.reals({4, 6});
  args.out.stride[0] = 0;
  EXPECT_REFUSED(BP_INVALID, BP_OP_SCALE, args);
  args.out.shape[0] = std::int64_t{1} << 50;
  EXPECT_REFUSED(BP_INVALID, BP_OP_FILL, args);
}

TEST_P(BadArgumentsTest, Ops) {
  Rig rig(GetParam());
  bp_scalar_args args{};
  args.x = args.out = rig.reals({2});
  EXPECT_REFUSED(BP_UNSUPPORTED, 0, args);
  EXPECT_REFUSED(BP_UNSUPPORTED, 4711, args);
  bp_op op{};
  op.size = sizeof(op);
  op.code = BP_OP_SCALE;
  EXPECT_EQ(Library::get().device.run(rig.device(), nullptr, rig.context(), &op), BP_INVALID) << "no arguments";
  bp_op_query query{};
  query.size = sizeof(query);
  query.code = BP_OP_SCALE;
  bp_support answer{};
  answer.size = sizeof(answer);
  EXPECT_EQ(Library::get().device.supports(rig.device(), rig.context(), &query, &answer), BP_INVALID);
  EXPECT_EQ(rig.ask(BP_OP_SCALE, args, &answer, 1ull << 60), BP_UNSUPPORTED);
  EXPECT_EQ(rig.ask(BP_OP_SCALE, args, &answer, BP_FEATURE_BIAS), BP_UNSUPPORTED);
}

TEST_P(BadArgumentsTest, LinearAndEmbed) {
  Rig rig(GetParam());
  bp_linear_args args{};
  args.x = rig.reals({2, 64});
  args.weight.tensor = rig.bytes(BP_TYPE_Q4_0, {3, 64});
  args.out = rig.reals({2, 3});
  ASSERT_EQ(rig.run(BP_OP_LINEAR, args), BP_OK) << rig.reason;
  EXPECT_EQ(rig.run_with(BP_OP_LINEAR, args, 0), BP_INVALID) << "no workspace";
  EXPECT_EQ(rig.run_with(BP_OP_LINEAR, args, 100), BP_INVALID) << "little workspace";
  const auto with = [&](auto change) {
    bp_linear_args changed = args;
    change(changed);
    return changed;
  };
  EXPECT_REFUSED(BP_INVALID, BP_OP_LINEAR, with([](auto& a) { a.x.shape[1] = 32; }));
  EXPECT_REFUSED(BP_INVALID, BP_OP_LINEAR, with([](auto& a) { a.weight.tensor.shape[1] = 63; }));
  EXPECT_REFUSED(BP_INVALID, BP_OP_LINEAR, with([](auto& a) { a.weight.tensor.stride[1] = 20; }));
  EXPECT_REFUSED(BP_INVALID, BP_OP_LINEAR, with([](auto& a) { a.weight.tensor.offset = 18; }));
  EXPECT_REFUSED(BP_INVALID, BP_OP_LINEAR, with([](auto& a) { a.out.shape[1] = 4; }));
  EXPECT_REFUSED(BP_INVALID, BP_OP_LINEAR, with([&](auto& a) { a.bias = rig.reals({4}); }));
  EXPECT_REFUSED(BP_UNSUPPORTED, BP_OP_LINEAR, with([&](auto& a) { a.bias = rig.bytes(BP_TYPE_F16, {3}); }));
  EXPECT_REFUSED(BP_UNSUPPORTED, BP_OP_LINEAR, with([&](auto& a) {
                   a.weight.tensor = rig.bytes(BP_TYPE_F8_E4M3, {3, 64});
                 }));
  EXPECT_REFUSED(BP_INVALID, BP_OP_LINEAR, with([](auto& a) { a.weight.weight = reinterpret_cast<bp_weight>(&a); }));
  EXPECT_REFUSED(BP_INVALID, BP_OP_LINEAR_ADD, args);  // without a residual

  bp_embed_args embed{};
  embed.table.tensor = args.weight.tensor;
  embed.out = rig.reals({2, 64});
  for (const double id : {-1.0, 3.0, 2147483647.0}) {
    embed.ids = rig.tensor(BP_TYPE_I32, {2}, {0, id});
    EXPECT_REFUSED(BP_INVALID, BP_OP_EMBED, embed);
  }
  bp_gather_args gather{};
  gather.x = args.x;
  gather.out = rig.reals({1, 64});
  for (const double index : {-1.0, 2.0}) {
    gather.index = rig.tensor(BP_TYPE_I32, {1}, {index});
    EXPECT_REFUSED(BP_INVALID, BP_OP_GATHER_ROWS, gather);
  }
  bp_advance_args advance{};
  advance.ids = rig.bytes(BP_TYPE_I32, {1});
  advance.token = rig.bytes(BP_TYPE_I32, {2});
  advance.target = rig.tensor(BP_TYPE_I32, {1}, {2});
  EXPECT_REFUSED(BP_INVALID, BP_OP_ADVANCE, advance);
}

TEST_P(BadArgumentsTest, RowOps) {
  Rig rig(GetParam());
  bp_norm_args norm{};
  norm.x = norm.out = rig.reals({2, 8});
  norm.kind = 3;
  EXPECT_REFUSED(BP_UNSUPPORTED, BP_OP_NORM, norm);
  norm.kind = BP_NORM_RMS;
  norm.weight = rig.reals({7});
  EXPECT_REFUSED(BP_INVALID, BP_OP_NORM, norm);
  bp_activation_args act{};
  act.x = act.out = norm.x;
  act.kind = 9;
  EXPECT_REFUSED(BP_UNSUPPORTED, BP_OP_ACT, act);
  bp_binary_args add{};
  add.a = add.out = norm.x;
  add.b = rig.reals({2, 7});
  EXPECT_REFUSED(BP_INVALID, BP_OP_ADD, add);

  bp_rope_args rope{};
  rope.x = rig.reals({2, 3, 8});
  rope.pos = rig.bytes(BP_TYPE_I32, {2});
  rope.row = rig.tensor(BP_TYPE_I32, {2}, {0, 1});
  rope.inv_freq = rig.bytes(BP_TYPE_F64, {1, 4});
  rope.scale = rig.bytes(BP_TYPE_F64, {1});
  rope.n_dims = 8;
  EXPECT_REFUSED(BP_INVALID, BP_OP_ROPE, rope);  // row 1 of 1
  rope.row = rig.tensor(BP_TYPE_I32, {2}, {0, -1});
  EXPECT_REFUSED(BP_INVALID, BP_OP_ROPE, rope);
  rope.row = rig.bytes(BP_TYPE_I32, {2});
  for (const std::uint32_t n_dims : {7u, 10u, 6u, ~0u}) {
    rope.n_dims = n_dims;
    EXPECT_REFUSED(BP_INVALID, BP_OP_ROPE, rope);
  }

  bp_topk_args topk{};
  topk.x = norm.x;
  topk.ids = rig.bytes(BP_TYPE_I32, {2, 9});
  topk.values = rig.reals({2, 9});
  EXPECT_REFUSED(BP_INVALID, BP_OP_TOPK, topk);
  bp_unary_args cast{};
  cast.x = rig.bytes(BP_TYPE_I32, {4});
  cast.out = rig.bytes(BP_TYPE_F32, {4});
  EXPECT_REFUSED(BP_UNSUPPORTED, BP_OP_CAST, cast);
  EXPECT_REFUSED(BP_INVALID, BP_OP_COPY, cast);
  std::swap(cast.x, cast.out);
  EXPECT_REFUSED(BP_UNSUPPORTED, BP_OP_CAST, cast);
}

TEST_P(BadArgumentsTest, Sampling) {
  Rig rig(GetParam());
  bp_sample_args args{};
  args.logits = rig.reals({1, 5});
  args.temperature = rig.tensor(BP_TYPE_F64, {1}, {1});
  args.top_p = rig.tensor(BP_TYPE_F64, {1}, {1});
  args.min_p = rig.tensor(BP_TYPE_F64, {1}, {0});
  args.top_k = rig.bytes(BP_TYPE_I32, {1});
  args.seed = args.counter = rig.bytes(BP_TYPE_U64, {1});
  args.ids = rig.bytes(BP_TYPE_I32, {1});
  ASSERT_EQ(rig.run(BP_OP_SAMPLE, args), BP_OK) << rig.reason;
  const auto refused = [&](bp_tensor bp_sample_args::*member, bp_type type, double value) {
    bp_sample_args changed = args;
    changed.*member = rig.tensor(type, {1}, {value});
    EXPECT_REFUSED(BP_INVALID, BP_OP_SAMPLE, changed);
  };
  for (const double value : {-0.5, std::nan(""), HUGE_VAL}) {
    refused(&bp_sample_args::temperature, BP_TYPE_F64, value);
    refused(&bp_sample_args::top_p, BP_TYPE_F64, value);
    refused(&bp_sample_args::min_p, BP_TYPE_F64, value);
  }
  refused(&bp_sample_args::top_k, BP_TYPE_I32, -1);
}

TEST_P(BadArgumentsTest, CacheAndAttention) {
  Rig rig(GetParam());
  const std::vector<Sequence> sequences = {{4, 5}, {0, 6}};
  const auto attention = [&](auto change) {
    Paged paged(rig, {}, sequences, 1);
    paged.write();
    bp_attention_args args = paged.attention_args(0, 2);
    change(paged, args);
    EXPECT_REFUSED(BP_INVALID, BP_OP_ATTN_PREFILL, args);
  };
  const auto M = std::size_t{2};  // pages a sequence
  attention([&](Paged& p, auto&) { p.table[2 * M] = -1; });
  attention([&](Paged& p, auto&) { p.table[2 * M + 1] = 1000; });
  attention([](Paged& p, auto&) { p.pos[0] = -1; });
  attention([](Paged& p, auto&) { p.pos[0] = 5; });
  attention([](Paged& p, auto&) { p.lengths[1] = 1000; });
  attention([](Paged& p, auto&) { p.lengths[1] = -5; });
  attention([](Paged& p, auto&) { p.lengths[1] = 2147483647, p.step.max_kv = 2147483647; });
  attention([](Paged& p, auto&) { p.starts[1] = -2; });
  attention([](Paged& p, auto&) { p.starts[2] = 100; });
  attention([](Paged& p, auto&) { p.step.max_pages = 1; });
  attention([](Paged& p, auto&) { p.step.page_size = 8; });
  attention([](Paged& p, auto&) { p.step.tokens = 3; });
  attention([](Paged& p, auto&) { p.step.pos = nullptr; });
  attention([](Paged&, auto& args) { args.last_sequence = 3; });
  attention([](Paged&, auto& args) { args.first_sequence = 2, args.last_sequence = 1; });
  attention([](Paged&, auto& args) { args.group = 2; });
  attention([](Paged&, auto& args) { args.kv_heads = 0; });
  attention([](Paged&, auto& args) { args.kv_heads = 3; });
  attention([](Paged&, auto& args) { args.step = nullptr; });
  attention([](Paged&, auto& args) { args.k_pages.shape[0] = 100; });
  attention([](Paged&, auto& args) { args.kv = reinterpret_cast<bp_kv>(&args); });

  Paged paged(rig, {}, sequences, 1);
  for (const std::int64_t slot : {std::int64_t{-2}, std::int64_t{1} << 40, std::numeric_limits<std::int64_t>::min()}) {
    paged.slots[7 + 3] = slot;
    EXPECT_REFUSED(BP_INVALID, BP_OP_KV_WRITE, paged.write_args());
  }
  bp_support answer{};
  EXPECT_EQ(rig.ask(BP_OP_KV_WRITE, paged.write_args(), &answer, 0), BP_UNSUPPORTED) << "no cache of its own";
  EXPECT_EQ(rig.ask(BP_OP_ATTN_DECODE, paged.attention_args(0, 1), &answer, BP_FEATURE_ATTN_SINKS), BP_UNSUPPORTED);
}

TEST_P(BadArgumentsTest, FusedOpsWithoutTheirParts) {
  Rig rig(GetParam());
  bp_add_norm_args add{};
  add.a = add.b = add.sum = rig.reals({2, 3});
  EXPECT_REFUSED(BP_INVALID, BP_OP_ADD_NORM, add);
  EXPECT_REFUSED(BP_INVALID, BP_OP_QKV_ROPE_WRITE, bp_qkv_args{});
  EXPECT_REFUSED(BP_INVALID, BP_OP_GATEUP_GLU, bp_gateup_args{});
  EXPECT_REFUSED(BP_INVALID, BP_OP_HEAD_ARGMAX, bp_head_argmax_args{});
}

TEST_P(BadArgumentsTest, NormsOfX) {
  Rig rig(GetParam());
  bp_norm_args norm{};
  norm.size = sizeof(norm);
  norm.kind = BP_NORM_RMS;
  norm.x = rig.reals({2, 4});
  bp_linear_args args{};
  args.x = rig.reals({2, 3});
  args.weight.tensor = rig.tensor(BP_TYPE_F32, {5, 3}, random_values(15, 1));
  args.out = rig.reals({2, 5});
  args.x_norm = &norm;
  EXPECT_REFUSED(BP_INVALID, BP_OP_LINEAR_ACT, args);  // of other rows
  norm.x = rig.reals({2, 3});
  norm.kind = 0;
  EXPECT_REFUSED(BP_UNSUPPORTED, BP_OP_LINEAR_ACT, args);
  norm.kind = BP_NORM_RMS;
  args.kind = 99;
  EXPECT_REFUSED(BP_UNSUPPORTED, BP_OP_LINEAR_ACT, args);
  args.kind = BP_ACT_RELU;
  EXPECT_EQ(rig.run(BP_OP_LINEAR_ACT, args), BP_OK) << rig.reason;
}

}  // namespace
}  // namespace backplane::cpu_test
