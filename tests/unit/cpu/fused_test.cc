// Fused ops give the bits of their parts.
#include <cmath>

#include "tests/unit/cpu/paged.h"

namespace backplane::cpu_test {
namespace {

class FusedTest : public CpuTest {};
INSTANTIATE_TEST_SUITE_P(Devices, FusedTest, ::testing::Values(0U, 1U), device_name);

bp_matrix matrix(const bp_tensor& tensor) { return {nullptr, tensor}; }

TEST_P(FusedTest, AddNorm) {
  Rig rig(GetParam());
  bp_norm_args norm{};
  norm.size = sizeof(norm);
  norm.kind = BP_NORM_RMS;
  norm.eps = 1e-5;
  norm.weight = rig.tensor(BP_TYPE_F32, {20}, random_values(20, 1));
  norm.out = rig.reals({3, 20});
  bp_add_norm_args args{};
  args.a = args.sum = rig.reals({3, 20}, random_values(60, 2));
  args.b = rig.reals({3, 20}, random_values(60, 3), 8);
  args.alpha = 0.5;
  args.norm = &norm;
  bp_binary_args add{};
  add.a = args.a;
  add.b = args.b;
  add.out = rig.reals({3, 20});
  add.alpha = 0.5;
  ASSERT_EQ(rig.run(BP_OP_ADD, add), BP_OK) << rig.reason;
  bp_norm_args part = norm;
  part.x = add.out;
  part.out = rig.reals({3, 20});
  ASSERT_EQ(rig.run(BP_OP_NORM, part), BP_OK) << rig.reason;
  ASSERT_EQ(rig.run(BP_OP_ADD_NORM, args), BP_OK) << rig.reason;
  EXPECT_EQ(rig.read(args.sum), rig.read(add.out));
  EXPECT_EQ(rig.read(norm.out), rig.read(part.out));
}

TEST_P(FusedTest, LinearAddInPlace) {
  Rig rig(GetParam());
  bp_linear_args args{};
  args.x = rig.reals({5, 24}, random_values(5 * 24, 1));
  args.weight = matrix(rig.tensor(BP_TYPE_F32, {10, 24}, random_values(240, 2)));
  args.bias = rig.tensor(BP_TYPE_F32, {10}, random_values(10, 3));
  args.out = rig.reals({5, 10});
  ASSERT_EQ(rig.run(BP_OP_LINEAR, args), BP_OK) << rig.reason;
  bp_binary_args add{};
  add.a = rig.reals({5, 10}, random_values(50, 4));
  add.b = args.out;
  add.out = rig.reals({5, 10});
  add.alpha = -2;
  ASSERT_EQ(rig.run(BP_OP_ADD, add), BP_OK) << rig.reason;
  args.residual = args.out = rig.reals({5, 10}, random_values(50, 4));
  args.alpha = -2;
  ASSERT_EQ(rig.run(BP_OP_LINEAR_ADD, args), BP_OK) << rig.reason;
  EXPECT_EQ(rig.read(args.out), rig.read(add.out));
}

TEST_P(FusedTest, NormLinearAct) {
  Rig rig(GetParam());
  bp_norm_args norm{};
  norm.size = sizeof(norm);
  norm.kind = BP_NORM_LAYER;
  norm.eps = 1e-5;
  norm.x = rig.reals({5, 24}, random_values(5 * 24, 1));
  norm.weight = rig.tensor(BP_TYPE_F32, {24}, random_values(24, 2));
  norm.out = rig.reals({5, 24});
  bp_linear_args args{};
  args.x = rig.reals({5, 24});
  args.weight = matrix(rig.tensor(BP_TYPE_F32, {10, 24}, random_values(240, 3)));
  args.bias = rig.tensor(BP_TYPE_F32, {10}, random_values(10, 4));
  args.out = rig.reals({5, 10});
  args.x_norm = &norm;
  args.kind = BP_ACT_GELU_ERF;
  ASSERT_EQ(rig.run(BP_OP_LINEAR_ACT, args), BP_OK) << rig.reason;
  ASSERT_EQ(rig.run(BP_OP_NORM, norm), BP_OK) << rig.reason;
  bp_linear_args linear = args;
  linear.x = norm.out;
  linear.x_norm = nullptr;
  linear.out = rig.reals({5, 10});
  ASSERT_EQ(rig.run(BP_OP_LINEAR, linear), BP_OK) << rig.reason;
  bp_activation_args act{};
  act.x = act.out = linear.out;
  act.kind = BP_ACT_GELU_ERF;
  ASSERT_EQ(rig.run(BP_OP_ACT, act), BP_OK) << rig.reason;
  EXPECT_EQ(rig.read(args.out), rig.read(act.out));
}

TEST_P(FusedTest, GateUpGlu) {
  Rig rig(GetParam());
  bp_glu_args glu{};
  glu.size = sizeof(glu);
  glu.kind = BP_ACT_SILU;
  glu.gate = rig.reals({5, 30});
  glu.up = rig.reals({5, 30});
  bp_gateup_args args{};
  args.x = rig.reals({5, 24}, random_values(5 * 24, 1));
  args.gate_weight = matrix(rig.tensor(BP_TYPE_F32, {30, 24}, random_values(720, 2)));
  args.up_weight = matrix(rig.tensor(BP_TYPE_F32, {30, 24}, random_values(720, 3)));
  args.up_bias = rig.tensor(BP_TYPE_F32, {30}, random_values(30, 4));
  args.out = rig.reals({5, 30});
  args.glu = &glu;
  ASSERT_EQ(rig.run(BP_OP_GATEUP_GLU, args), BP_OK) << rig.reason;
  bp_linear_args linear{};
  linear.x = args.x;
  linear.weight = args.gate_weight;
  bp_glu_args part = glu;
  part.gate = linear.out = rig.reals({5, 30});
  ASSERT_EQ(rig.run(BP_OP_LINEAR, linear), BP_OK) << rig.reason;
  linear.weight = args.up_weight;
  linear.bias = args.up_bias;
  part.up = linear.out = rig.reals({5, 30});
  ASSERT_EQ(rig.run(BP_OP_LINEAR, linear), BP_OK) << rig.reason;
  part.out = rig.reals({5, 30});
  ASSERT_EQ(rig.run(BP_OP_GLU, part), BP_OK) << rig.reason;
  EXPECT_EQ(rig.read(args.out), rig.read(part.out));
}

TEST_P(FusedTest, HeadArgmax) {
  Rig rig(GetParam());
  bp_head_argmax_args args{};
  args.x = rig.reals({19, 12}, random_values(19 * 12, 1));
  args.weight = matrix(rig.tensor(BP_TYPE_F32, {40, 12}, random_values(480, 2)));
  args.bias = rig.tensor(BP_TYPE_F32, {40}, random_values(40, 3));
  args.ids = rig.bytes(BP_TYPE_I32, {19});
  args.values = rig.reals({19});
  ASSERT_EQ(rig.run(BP_OP_HEAD_ARGMAX, args), BP_OK) << rig.reason;
  bp_linear_args linear{};
  linear.x = args.x;
  linear.weight = args.weight;
  linear.bias = args.bias;
  bp_topk_args topk{};
  topk.x = linear.out = rig.reals({19, 40});
  topk.ids = rig.bytes(BP_TYPE_I32, {19, 1});
  topk.values = rig.reals({19, 1});
  ASSERT_EQ(rig.run(BP_OP_LINEAR, linear), BP_OK) << rig.reason;
  ASSERT_EQ(rig.run(BP_OP_TOPK, topk), BP_OK) << rig.reason;
  EXPECT_EQ(rig.read(args.ids), rig.read(topk.ids));
  EXPECT_EQ(rig.read(args.values), rig.read(topk.values));
}

// With heads that follow each other (gap 0) and with gaps between them.
TEST_P(FusedTest, QkvRopeWrite) {
  Rig rig(GetParam());
  for (const std::int64_t gap : {0, 16}) {
    const std::vector<Sequence> sequences = {{5, 6}, {0, 4}};
    const Geometry g;  // 4 heads of 6 over 2
    Paged paged(rig, g, sequences, 1), parts(rig, g, sequences, 1);
    const auto weight = [&](std::int64_t rows, unsigned seed) {
      return matrix(rig.tensor(BP_TYPE_F32, {rows, 10}, random_values(static_cast<std::size_t>(rows) * 10, seed)));
    };
    bp_norm_args norm{};
    norm.size = sizeof(norm);
    norm.kind = BP_NORM_RMS;
    norm.eps = 1e-5;
    norm.weight = rig.tensor(BP_TYPE_F32, {6}, random_values(6, 4));
    bp_rope_args rope{};
    rope.size = sizeof(rope);
    rope.pos = rig.tensor(BP_TYPE_I32, {5}, {5, 0, 1, 2, 3});
    rope.row = rig.tensor(BP_TYPE_I32, {5}, {0, 0, 0, 0, 0});
    rope.inv_freq = rig.tensor(BP_TYPE_F64, {1, 2}, {1, 0.1});
    rope.scale = rig.tensor(BP_TYPE_F64, {1}, {1});
    rope.n_dims = 4;
    bp_kv_write_args write = paged.write_args();
    write.size = sizeof(write);
    write.k = rig.reals({5, 2, 6}, gap);
    write.v = rig.reals({5, 2, 6}, gap);
    bp_qkv_args args{};
    args.x = rig.reals({5, 10}, random_values(50, 1));
    args.q_weight = weight(24, 5);
    args.k_weight = weight(12, 6);
    args.v_weight = weight(12, 7);
    args.k_bias = rig.tensor(BP_TYPE_F32, {12}, random_values(12, 8));
    args.q_norm = args.k_norm = &norm;
    args.rope = &rope;
    args.write = &write;
    args.q = rig.reals({5, 4, 6}, gap);
    ASSERT_EQ(rig.run(BP_OP_QKV_ROPE_WRITE, args), BP_OK) << rig.reason;

    const auto project = [&](const bp_matrix& w, const bp_tensor& bias, std::int64_t heads, bool rotated) {
      bp_linear_args linear{};
      linear.x = args.x;
      linear.weight = w;
      linear.bias = bias;
      linear.out = rig.reals({5, heads * 6});
      EXPECT_EQ(rig.run(BP_OP_LINEAR, linear), BP_OK) << rig.reason;
      const bp_tensor out = rig.reals({5, heads, 6}, rig.read(linear.out));
      if (!rotated) return out;
      bp_norm_args head = norm;
      head.x = head.out = out;
      EXPECT_EQ(rig.run(BP_OP_NORM, head), BP_OK) << rig.reason;
      bp_rope_args turn = rope;
      turn.x = out;
      EXPECT_EQ(rig.run(BP_OP_ROPE, turn), BP_OK) << rig.reason;
      return out;
    };
    EXPECT_EQ(rig.read(args.q), rig.read(project(args.q_weight, {}, 4, true)));
    bp_kv_write_args last = parts.write_args();
    last.k = project(args.k_weight, args.k_bias, 2, true);
    last.v = project(args.v_weight, {}, 2, false);
    ASSERT_EQ(rig.run(BP_OP_KV_WRITE, last), BP_OK) << rig.reason;
    EXPECT_EQ(std::memcmp(rig.address(paged.k_pages), rig.address(parts.k_pages), 5 * 2 * 4 * 12 * 4), 0);
  }
}

}  // namespace
}  // namespace backplane::cpu_test
