// Products of float weights: the same bits for a token whatever is computed beside it, and whether our own kernels
// compute it or oneDNN.
#include "tests/unit/onednn/ops.h"

namespace backplane {
namespace {

using test::Onednn;

// Groups of panels and of tokens of every size that is treated differently, a rest of each; columns in several parts.
constexpr std::int64_t kRows = 24 * 8 + 8 * 8 + 3 * 8 + 5, kColumns = 2 * 256 + 37, kTokens = 256 + 32 + 16 + 11;

struct Floats {
  bp_type type;
  const char* kernels;
};

class OnednnFloats : public testing::TestWithParam<Floats> {
 protected:
  static std::vector<std::byte> weights(std::uint64_t seed) {
    test::TinyRandom random(seed);
    const std::vector<float> values = test::tiny_values(random, kRows * kColumns, 1);
    if (GetParam().type == BP_TYPE_F32) {
      const auto bytes = std::as_bytes(std::span(values));
      return {bytes.begin(), bytes.end()};
    }
    std::vector<std::uint16_t> narrow;
    for (const float value : values) {
      narrow.push_back(GetParam().type == BP_TYPE_F16 ? plugin::float_to_half(value) : plugin::float_to_bfloat(value));
    }
    const auto bytes = std::as_bytes(std::span(narrow));
    return {bytes.begin(), bytes.end()};
  }

  static std::optional<Onednn> open(const std::string& floats) {
    return Onednn::open("floats=" + floats + ",kernels=" + GetParam().kernels);
  }

  // Tokens [first, first + count) of one text, as LINEAR and as GATEUP_GLU.
  static std::vector<float> compute(Onednn& device, std::int64_t first, std::int64_t count) {
    test::TinyRandom random(3);
    const std::vector<float> all = test::tiny_values(random, kTokens * kColumns, 1);
    const bp_tensor x =
        device.floats({all.begin() + first * kColumns, all.begin() + (first + count) * kColumns}, count, 3);
    bp_linear_args linear{};
    linear.x = x;
    linear.weight = device.matrix(GetParam().type, kRows, kColumns, weights(1));
    linear.out = device.tensor(BP_TYPE_F32, count, kRows, 1);
    device.run(BP_OP_LINEAR, linear);
    bp_gateup_args gated{};
    gated.x = x;
    gated.gate_weight = linear.weight;
    gated.up_weight = device.matrix(GetParam().type, kRows, kColumns, weights(2));
    gated.out = device.tensor(BP_TYPE_F32, count, kRows);
    bp_glu_args glu{};
    glu.size = sizeof(glu);
    glu.gate = glu.out = gated.out;
    glu.up = device.tensor(BP_TYPE_F32, count, kRows);
    glu.kind = BP_ACT_SILU;
    gated.glu = &glu;
    device.run(BP_OP_GATEUP_GLU, gated);
    std::vector<float> out;
    for (std::int64_t t = 0; t < count; ++t) {
      for (const bp_tensor& results : {linear.out, gated.out}) {
        const float* row = device.row<float>(results, t);
        out.insert(out.end(), row, row + kRows);
      }
    }
    return out;
  }

  static void expect_part_of(const std::vector<float>& whole, Onednn& device, std::int64_t first, std::int64_t count) {
    const std::vector<float> part = compute(device, first, count);
    ASSERT_EQ(part.size(), static_cast<std::size_t>(count * 2 * kRows));
    EXPECT_EQ(std::memcmp(part.data(), whole.data() + first * 2 * kRows, part.size() * sizeof(float)), 0)
        << "tokens " << first << " to " << first + count;
  }
};

TEST_P(OnednnFloats, AreTheSameWhoeverComputesThem) {
  auto own = open("own"), library = open("onednn"), chosen = open("auto");
  if (!own) GTEST_SKIP() << "not for this processor";
  const std::vector<float> whole = compute(*own, 0, kTokens);
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{100}, kTokens - 1})
    expect_part_of(whole, *own, first, 1);
  for (const std::int64_t count : {2, 5, 12, 17, 129}) expect_part_of(whole, *own, 7, count);
  expect_part_of(whole, *chosen, 0, kTokens);
  if (!library) GTEST_SKIP() << "built without oneDNN";
  expect_part_of(whole, *library, 0, kTokens);
  for (const std::int64_t count : {15, 16, 47}) expect_part_of(whole, *library, 9, count);
  plugins::set_host_threads(3);
  expect_part_of(whole, *library, 0, kTokens);
  plugins::set_host_threads(2);
}

INSTANTIATE_TEST_SUITE_P(Types, OnednnFloats,
                         testing::Values(Floats{BP_TYPE_F32, "AVX3_DL"}, Floats{BP_TYPE_F16, "AVX3_DL"},
                                         Floats{BP_TYPE_F32, "AVX2"}, Floats{BP_TYPE_F16, "AVX2"},
                                         Floats{BP_TYPE_BF16, "AVX2"}),
                         [](const auto& each) {
                           return std::string(plugin::type_info(each.param.type).name) + each.param.kernels;
                         });

TEST(OnednnFloatsOption, IsCheckedWhenOpened) {
  EXPECT_TRUE(Onednn::open("floats=own"));
  EXPECT_FALSE(Onednn::open("floats=other"));
}

}  // namespace
}  // namespace backplane
