// A token's bits depend neither on the other tokens, nor on how a prompt is cut, nor on the number of threads.
#include "tests/unit/cpu/paged.h"

namespace backplane::cpu_test {
namespace {

class InvarianceTest : public CpuTest {};
INSTANTIATE_TEST_SUITE_P(Devices, InvarianceTest, ::testing::Values(0U, 1U), device_name);

constexpr std::int64_t kInputs = 320, kOutputs = 301;

// LINEAR with quantized weights, then NORM, over `tokens` rows of which the first comes from `seed`.
Values rows(std::uint32_t device, unsigned threads, std::int64_t first, std::int64_t tokens) {
  Rig rig(device, threads);
  std::string blocks(*plugin::row_bytes(BP_TYPE_Q4_0, kOutputs * kInputs), 0);
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<char>(0x2c + i * 2654435761u % 4);
  const Values all = random_values(40 * kInputs, 3);
  bp_linear_args linear{};
  linear.x =
      rig.reals({tokens, kInputs}, Values(all.begin() + first * kInputs, all.begin() + (first + tokens) * kInputs));
  linear.weight.tensor = rig.bytes(BP_TYPE_Q4_0, {kOutputs, kInputs}, blocks.data());
  linear.out = rig.reals({tokens, kOutputs});
  EXPECT_EQ(rig.run(BP_OP_LINEAR, linear), BP_OK) << rig.reason;
  bp_norm_args norm{};
  norm.kind = BP_NORM_LAYER;
  norm.eps = 1e-6;
  norm.x = linear.out;
  norm.out = rig.reals({tokens, kOutputs});
  EXPECT_EQ(rig.run(BP_OP_NORM, norm), BP_OK) << rig.reason;
  return rig.read(norm.out);
}

TEST_P(InvarianceTest, LinearAndNorm) {
  const Values whole = rows(GetParam(), 1, 0, 40);
  EXPECT_EQ(rows(GetParam(), 2, 0, 40), whole);
  EXPECT_EQ(rows(GetParam(), 3, 0, 40), whole);
  for (unsigned threads = 1; threads <= 3; ++threads) {
    for (const std::int64_t first : {0, 17, 39}) {
      const Values one = rows(GetParam(), threads, first, 1);
      EXPECT_TRUE(std::equal(one.begin(), one.end(), whole.begin() + first * kOutputs)) << threads << " " << first;
    }
  }
}

Values attend(std::uint32_t device, unsigned threads, const std::vector<Sequence>& sequences,
              const std::vector<int>& names, std::uint32_t window) {
  Rig rig(device, threads);
  Paged paged(rig, {.heads = 6, .kv_heads = 2, .dim = 21, .value_dim = 21, .window = window}, sequences, 0, names);
  paged.write();
  EXPECT_EQ(rig.run(BP_OP_ATTN_PREFILL, paged.attention_args(0, paged.step.sequences)), BP_OK) << rig.reason;
  return rig.read(paged.out);
}

TEST_P(InvarianceTest, Attention) {
  constexpr std::ptrdiff_t kRow = 6 * 21;
  for (const std::uint32_t window : {0u, 9u}) {
    const Values whole = attend(GetParam(), 1, {{0, 37}}, {8}, window);
    for (unsigned threads = 1; threads <= 3; ++threads) {
      EXPECT_EQ(attend(GetParam(), threads, {{0, 37}}, {8}, window), whole);
      for (const Sequence part : {Sequence{0, 3}, Sequence{20, 37}, Sequence{36, 37}}) {
        const Values alone = attend(GetParam(), threads, {part}, {8}, window);
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), whole.begin() + part.begin * kRow));
        const Values among = attend(GetParam(), threads, {{3, 9}, part, {0, 12}}, {1, 8, 2}, window);
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), among.begin() + 6 * kRow));
      }
    }
  }
}

}  // namespace
}  // namespace backplane::cpu_test
