// The ops on rows and elements, against their formulas in double.
#include <cmath>

#include "tests/unit/cpu/rig.h"

namespace backplane::cpu_test {
namespace {

class OpsTest : public CpuTest {};
INSTANTIATE_TEST_SUITE_P(Devices, OpsTest, ::testing::Values(0U, 1U), device_name);

Values norm(const Values& x, std::size_t n, bool layer, double eps, const Values& weight, double offset,
            const Values& bias) {
  Values out(x.size());
  for (std::size_t r = 0; r < x.size() / n; ++r) {
    double mean = 0, squares = 0;
    for (std::size_t i = 0; i < n; ++i) mean += layer ? x[r * n + i] / static_cast<double>(n) : 0;
    for (std::size_t i = 0; i < n; ++i) squares += std::pow(x[r * n + i] - mean, 2);
    for (std::size_t i = 0; i < n; ++i) {
      const double w = weight.empty() ? 1 : offset + weight[i];
      out[r * n + i] =
          (x[r * n + i] - mean) / std::sqrt(squares / static_cast<double>(n) + eps) * w + (bias.empty() ? 0 : bias[i]);
    }
  }
  return out;
}

TEST_P(OpsTest, Norm) {
  Rig rig(GetParam());
  for (const std::int64_t n : {1, 7, 64, 100}) {
    for (const bool layer : {false, true}) {
      for (const int parameters : {0, 1, 2}) {
        const auto un = static_cast<std::size_t>(n);
        const Values x = random_values(6 * un, 1), w = random_values(un, 2), b = random_values(un, 3);
        bp_norm_args args{};
        args.kind = layer ? BP_NORM_LAYER : BP_NORM_RMS;
        args.eps = 1e-3;
        args.unit_offset = parameters == 2 ? 1 : 0;
        args.x = rig.reals({3, 2, n}, x, 16);
        if (parameters > 0) args.weight = rig.tensor(parameters == 1 ? rig.real() : bp_type{BP_TYPE_F32}, {n}, w);
        if (parameters > 1) args.bias = rig.tensor(BP_TYPE_F32, {n}, b);
        args.out = rig.reals({3, 2, n});
        ASSERT_EQ(rig.run(BP_OP_NORM, args), BP_OK) << rig.reason;
        const Values expected =
            norm(x, un, layer, 1e-3, parameters > 0 ? w : Values{}, args.unit_offset, parameters > 1 ? b : Values{});
        expect_near(rig.read(args.out), expected, rig.tolerance());
        args.out = args.x;  // in place
        ASSERT_EQ(rig.run(BP_OP_NORM, args), BP_OK) << rig.reason;
        expect_near(rig.read(args.x), expected, rig.tolerance());
      }
    }
  }
}

TEST_P(OpsTest, Rope) {
  Rig rig(GetParam());
  const std::size_t tokens = 4, heads = 3, dim = 10;
  for (const bool interleaved : {false, true}) {
    for (const std::uint32_t n_dims : {0u, 2u, 6u, 10u}) {
      const Values x = random_values(tokens * heads * dim, 1);
      const Values pos = {0, 1, 500, 131071}, row = {1, 0, 1, 1}, scale = {1, 1.25};
      const std::size_t pairs = n_dims / 2;
      Values frequencies(2 * pairs);
      for (std::size_t i = 0; i < frequencies.size(); ++i) frequencies[i] = std::pow(0.37, static_cast<double>(i));
      bp_rope_args args{};
      args.x = rig.reals({4, 3, 10}, x, 8);
      args.pos = rig.tensor(BP_TYPE_I32, {4}, pos);
      args.row = rig.tensor(BP_TYPE_I32, {4}, row);
      args.inv_freq = rig.tensor(BP_TYPE_F64, {2, static_cast<std::int64_t>(pairs)}, frequencies);
      args.scale = rig.tensor(BP_TYPE_F64, {2}, scale);
      args.n_dims = n_dims;
      args.interleaved = interleaved;
      ASSERT_EQ(rig.run(BP_OP_ROPE, args), BP_OK) << rig.reason;
      Values expected = x;
      for (std::size_t v = 0; v < tokens * heads; ++v) {
        const std::size_t t = v / heads;
        const auto r = static_cast<std::size_t>(row[t]);
        for (std::size_t i = 0; i < pairs; ++i) {
          const double angle = pos[t] * frequencies[r * pairs + i];
          const double c = std::cos(angle) * scale[r], s = std::sin(angle) * scale[r];
          const std::size_t a = v * dim + (interleaved ? 2 * i : i), b = interleaved ? a + 1 : a + pairs;
          expected[a] = x[a] * c - x[b] * s;
          expected[b] = x[a] * s + x[b] * c;
        }
      }
      expect_near(rig.read(args.x), expected, rig.tolerance());
    }
  }
}

double activation(std::uint32_t kind, double x) {
  switch (kind) {
    case BP_ACT_GELU_ERF:
      return x / 2 * std::erfc(-x / std::sqrt(2.0));
    case BP_ACT_GELU_TANH:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case BP_ACT_SILU:
      return x / (1 + std::exp(-x));
    default:
      return std::max(x, 0.0);
  }
}

TEST_P(OpsTest, ActivationsAndGating) {
  Rig rig(GetParam());
  const Values both = random_values(5 * 2 * 33, 1, 3);
  for (std::uint32_t kind = BP_ACT_GELU_ERF; kind <= BP_ACT_RELU; ++kind) {
    bp_activation_args act{};
    act.x = rig.reals({10, 33}, both, 8);
    act.out = rig.reals({10, 33}, 16);
    act.kind = kind;
    ASSERT_EQ(rig.run(BP_OP_ACT, act), BP_OK) << rig.reason;
    Values expected(both);
    for (double& value : expected) value = activation(kind, value);
    expect_near(rig.read(act.out), expected, rig.tolerance());

    bp_glu_args glu{};  // the two halves of one tensor, in place
    glu.gate = rig.reals({5, 66}, both);
    glu.gate.shape[1] = 33;
    glu.up = glu.gate;
    glu.up.offset += 33 * type_info(rig.real()).block_bytes;
    glu.out = glu.gate;
    glu.kind = kind;
    ASSERT_EQ(rig.run(BP_OP_GLU, glu), BP_OK) << rig.reason;
    Values gated;
    for (std::size_t i = 0; i < 5 * 33; ++i) {
      const std::size_t at = i / 33 * 66 + i % 33;
      gated.push_back(activation(kind, both[at]) * both[at + 33]);
    }
    expect_near(rig.read(glu.out), gated, rig.tolerance());
  }
}

TEST_P(OpsTest, AddMulScaleSoftcap) {
  Rig rig(GetParam());
  const Values a = random_values(3 * 2 * 9, 1), b = random_values(3 * 2 * 9, 2), row = random_values(9, 3);
  for (const bool one_row : {false, true}) {
    for (const double alpha : {1.0, -0.75}) {
      bp_binary_args args{};
      args.a = rig.reals({3, 2, 9}, a, 8);
      args.b = one_row ? rig.reals({9}, row) : rig.reals({3, 2, 9}, b, 24);
      args.out = rig.reals({3, 2, 9});
      args.alpha = alpha;
      Values sum(a), product(a);
      for (std::size_t i = 0; i < a.size(); ++i) {
        const double other = one_row ? row[i % 9] : b[i];
        sum[i] = a[i] + alpha * other;
        product[i] = alpha * a[i] * other;
      }
      ASSERT_EQ(rig.run(BP_OP_ADD, args), BP_OK) << rig.reason;
      expect_near(rig.read(args.out), sum, rig.tolerance());
      args.out = args.a;
      ASSERT_EQ(rig.run(BP_OP_MUL, args), BP_OK) << rig.reason;
      expect_near(rig.read(args.a), product, rig.tolerance());
    }
  }
  bp_scalar_args args{};
  args.x = rig.reals({6, 9}, a);
  args.out = rig.reals({6, 9}, 8);
  args.value = 1.5;
  Values scaled(a), capped(a);
  for (double& value : scaled) value *= 1.5;
  for (double& value : capped) value = 1.5 * std::tanh(value / 1.5);
  ASSERT_EQ(rig.run(BP_OP_SCALE, args), BP_OK) << rig.reason;
  expect_near(rig.read(args.out), scaled, rig.tolerance());
  args.out = args.x;
  ASSERT_EQ(rig.run(BP_OP_SOFTCAP, args), BP_OK) << rig.reason;
  expect_near(rig.read(args.x), capped, rig.tolerance());
}

TEST_P(OpsTest, GatherAndAdvance) {
  Rig rig(GetParam());
  const Values x = random_values(5 * 3, 1);
  bp_gather_args args{};
  args.x = rig.reals({5, 3}, x, 8);
  args.index = rig.tensor(BP_TYPE_I32, {4}, {4, 0, 0, 2});
  args.out = rig.reals({4, 3});
  ASSERT_EQ(rig.run(BP_OP_GATHER_ROWS, args), BP_OK) << rig.reason;
  const Values expected = {x[12], x[13], x[14], x[0], x[1], x[2], x[0], x[1], x[2], x[6], x[7], x[8]};
  EXPECT_EQ(rig.read(args.out), expected);

  bp_advance_args advance{};
  advance.ids = rig.tensor(BP_TYPE_I32, {3}, {7, 8, 9});
  advance.target = rig.tensor(BP_TYPE_I32, {3}, {2, -1, 0});
  advance.token = rig.tensor(BP_TYPE_I32, {4}, {1, 2, 3, 4});
  ASSERT_EQ(rig.run(BP_OP_ADVANCE, advance), BP_OK) << rig.reason;
  EXPECT_EQ(rig.read(advance.token), (Values{9, 2, 7, 4}));
}

TEST_P(OpsTest, NothingToDoIsDone) {
  Rig rig(GetParam());
  bp_linear_args linear{};
  linear.x = rig.reals({0, 8});
  linear.weight.tensor = rig.reals({3, 8});
  linear.out = rig.reals({0, 3});
  EXPECT_EQ(rig.run(BP_OP_LINEAR, linear), BP_OK) << rig.reason;
  bp_norm_args args{};
  args.kind = BP_NORM_RMS;
  args.x = args.out = rig.reals({0, 4});
  EXPECT_EQ(rig.run(BP_OP_NORM, args), BP_OK) << rig.reason;
  bp_gather_args gather{};
  gather.x = rig.reals({2, 4});
  gather.index = rig.bytes(BP_TYPE_I32, {0});
  gather.out = rig.reals({0, 4});
  EXPECT_EQ(rig.run(BP_OP_GATHER_ROWS, gather), BP_OK) << rig.reason;
}

}  // namespace
}  // namespace backplane::cpu_test
