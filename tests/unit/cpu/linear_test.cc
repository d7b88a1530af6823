// LINEAR and EMBED over all weight types, shapes and strides, against sums in the test.
#include <cmath>

#include "tests/unit/cpu/rig.h"

namespace backplane::cpu_test {
namespace {

class LinearTest : public CpuTest {};
INSTANTIATE_TEST_SUITE_P(Devices, LinearTest, ::testing::Values(0U, 1U), device_name);

Values product(const Values& x, const Values& w, const Values& bias, std::size_t tokens, std::size_t inputs) {
  const std::size_t outputs = w.size() / inputs;
  Values out(tokens * outputs);
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t n = 0; n < outputs; ++n) {
      double sum = bias.empty() ? 0 : bias[n];
      for (std::size_t c = 0; c < inputs; ++c) sum += x[t * inputs + c] * w[n * inputs + c];
      out[t * outputs + n] = sum;
    }
  }
  return out;
}

TEST_P(LinearTest, RaggedShapesBiasAndGaps) {
  Rig rig(GetParam());
  for (const std::int64_t tokens : {1, 3, 17}) {
    for (const auto& [n, c] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {5, 7}, {33, 100}, {64, 16}}) {
      for (const bool gaps : {false, true}) {
        const auto size = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
        const Values x = random_values(size(tokens, c), 1), w = random_values(size(n, c), 2),
                     b = random_values(size(n, 1), 3);
        bp_linear_args args{};
        args.x = rig.reals({tokens, c}, x, gaps ? 40 : 0);
        args.weight.tensor = rig.tensor(gaps ? BP_TYPE_F64 : BP_TYPE_F32, {n, c}, w, gaps ? 16 : 0);
        if (gaps) args.bias = rig.tensor(BP_TYPE_F32, {n}, b);
        args.out = rig.reals({tokens, n}, gaps ? 8 : 0);
        ASSERT_EQ(rig.run(BP_OP_LINEAR, args), BP_OK) << rig.reason;
        expect_near(rig.read(args.out),
                    product(x, w, gaps ? b : Values{}, static_cast<std::size_t>(tokens), static_cast<std::size_t>(c)),
                    rig.tolerance());
      }
    }
  }
}

TEST_P(LinearTest, TransposedWeight) {
  Rig rig(GetParam());
  const std::int64_t n = 19, c = 300;  // longer than what is collected at a time
  const Values x = random_values(2 * 300, 4), stored = random_values(300 * 19, 5);
  Values w(stored.size());
  for (std::size_t i = 0; i < 300; ++i) {
    for (std::size_t j = 0; j < 19; ++j) w[j * 300 + i] = stored[i * 19 + j];
  }
  bp_linear_args args{};
  args.x = rig.reals({2, c}, x);
  for (const bp_type type : {BP_TYPE_F32, BP_TYPE_F64}) {
    args.weight.tensor = rig.tensor(type, {c, n}, stored);
    std::swap(args.weight.tensor.shape[0], args.weight.tensor.shape[1]);
    std::swap(args.weight.tensor.stride[0], args.weight.tensor.stride[1]);
    args.out = rig.reals({2, n});
    bp_support answer{};
    ASSERT_EQ(rig.ask(BP_OP_LINEAR, args, &answer, BP_FEATURE_TRANSPOSED), BP_OK) << rig.reason;
    ASSERT_EQ(rig.run(BP_OP_LINEAR, args), BP_OK) << rig.reason;
    expect_near(rig.read(args.out), product(x, w, {}, 2, 300), rig.tolerance());
  }
}

const bp_type kWeightTypes[] = {BP_TYPE_F64,  BP_TYPE_F32,  BP_TYPE_F16,    BP_TYPE_BF16,   BP_TYPE_Q4_0, BP_TYPE_Q4_1,
                                BP_TYPE_Q5_0, BP_TYPE_Q5_1, BP_TYPE_Q8_0,   BP_TYPE_Q2_K,   BP_TYPE_Q3_K, BP_TYPE_Q4_K,
                                BP_TYPE_Q5_K, BP_TYPE_Q6_K, BP_TYPE_IQ4_NL, BP_TYPE_IQ4_XS, BP_TYPE_MXFP4};

// Bytes that mean ordinary numbers in every type: an even byte 0x2c to 0x2f where a half has its exponent.
std::string ordinary_bytes(std::size_t count) {
  std::string bytes(count, 0);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(0x2c + (i * 7 + i / 5) % 4);
  return bytes;
}

// What a matrix of that type means is the business of CAST, which is compared with gguf-py elsewhere.
TEST_P(LinearTest, EveryWeightType) {
  Rig rig(GetParam());
  const std::int64_t n = 11, c = 512;
  const Values x = random_values(3 * 512, 6);
  for (const bp_type type : kWeightTypes) {
    SCOPED_TRACE(type_info(type).name);
    const std::string data = ordinary_bytes(*plugin::row_bytes(type, 11 * 512));
    bp_unary_args cast{};
    cast.x = type == BP_TYPE_F64 ? rig.tensor(type, {n, c}, random_values(11 * 512, 9))
                                 : rig.bytes(type, {n, c}, data.data());
    cast.out = rig.bytes(BP_TYPE_F64, {n, c});
    ASSERT_EQ(rig.run(BP_OP_CAST, cast), BP_OK) << rig.reason;
    const Values w = rig.read(cast.out);

    bp_linear_args args{};
    args.x = rig.reals({3, c}, x);
    args.weight.tensor = cast.x;
    args.out = rig.reals({3, n});
    ASSERT_EQ(rig.run(BP_OP_LINEAR, args), BP_OK) << rig.reason;
    const Values expected = product(x, w, {}, 3, 512);
    double magnitude = 0;  // the sums may cancel: errors go with the terms
    for (const double value : w) magnitude = std::max(magnitude, std::abs(value));
    const Values out = rig.read(args.out);
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_NEAR(out[i], expected[i], rig.tolerance() * magnitude * 30) << "element " << i;
    }

    bp_embed_args embed{};
    embed.ids = rig.tensor(BP_TYPE_I32, {4}, {10, 0, 10, 3});
    embed.table.tensor = cast.x;
    embed.out = rig.reals({4, c}, 8);
    ASSERT_EQ(rig.run(BP_OP_EMBED, embed), BP_OK) << rig.reason;
    const Values rows = rig.read(embed.out);
    const std::size_t ids[] = {10, 0, 10, 3};
    for (std::size_t i = 0; i < rows.size(); ++i)
      ASSERT_EQ(rows[i], GetParam() == 0 ? static_cast<float>(w[ids[i / 512] * 512 + i % 512])
                                         : w[ids[i / 512] * 512 + i % 512]);
  }
}

TEST_P(LinearTest, WeightsNeedNoAlignment) {
  Rig rig(GetParam());
  const Values x = random_values(8, 7), w = random_values(3 * 8, 8);
  bp_linear_args args{};
  args.x = rig.reals({1, 8}, x);
  args.weight.tensor = rig.tensor(BP_TYPE_F32, {3, 8}, w);
  const std::byte* from = rig.address(args.weight.tensor);
  bp_tensor shifted = rig.bytes(BP_TYPE_U8, {97});
  std::memcpy(rig.address(shifted) + 1, from, 96);
  args.weight.tensor.buffer = shifted.buffer;
  args.weight.tensor.offset = 1;
  args.out = rig.reals({1, 3});
  ASSERT_EQ(rig.run(BP_OP_LINEAR, args), BP_OK) << rig.reason;
  expect_near(rig.read(args.out), product(x, w, {}, 1, 8), rig.tolerance());
}

TEST_P(LinearTest, SumsInTheTypeItSays) {
  Rig rig(GetParam());
  bp_linear_args args{};
  args.x = rig.reals({1, 2}, {1, 1});
  args.weight.tensor = rig.tensor(BP_TYPE_F32, {1, 2}, {16777216, 1});
  args.out = rig.reals({1, 1});
  ASSERT_EQ(rig.run(BP_OP_LINEAR, args), BP_OK) << rig.reason;
  EXPECT_EQ(rig.read(args.out)[0], GetParam() == 1 ? 16777217 : 16777216);
  bp_support answer{};
  ASSERT_EQ(rig.ask(BP_OP_LINEAR, args, &answer), BP_OK);
  EXPECT_EQ(answer.accumulator_type, rig.real());
}

}  // namespace
}  // namespace backplane::cpu_test
