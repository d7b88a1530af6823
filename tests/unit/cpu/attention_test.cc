// KV_WRITE and attention over shuffled pages, against the formula in double.
#include <limits>

#include "tests/unit/cpu/paged.h"

namespace backplane::cpu_test {
namespace {

class AttentionTest : public CpuTest {};
INSTANTIATE_TEST_SUITE_P(Devices, AttentionTest, ::testing::Values(0U, 1U), device_name);

const std::vector<Sequence> kSequences = {{10, 11}, {4, 6}, {0, 7}, {5, 14}};

void check_geometry(Rig& rig, const Geometry& geometry) {
  Paged paged(rig, geometry, kSequences, 2);
  paged.write();
  ASSERT_EQ(rig.run(BP_OP_ATTN_DECODE, paged.attention_args(0, 2)), BP_OK) << rig.reason;
  const Values half = rig.read(paged.out);
  EXPECT_EQ(half[3 * static_cast<std::size_t>(geometry.heads * geometry.value_dim)], 99) << "others stay as they are";
  ASSERT_EQ(rig.run(BP_OP_ATTN_PREFILL, paged.attention_args(2, 4)), BP_OK) << rig.reason;
  Values expected;
  for (std::size_t b = 0; b < kSequences.size(); ++b) {
    for (int p = kSequences[b].begin; p < kSequences[b].end; ++p) {
      const Values row = paged.expected(b, p);
      expected.insert(expected.end(), row.begin(), row.end());
    }
  }
  expect_near(rig.read(paged.out), expected, rig.tolerance());
}

TEST_P(AttentionTest, HeadsDimsAndPageSizes) {
  Rig rig(GetParam());
  check_geometry(rig, {});
  check_geometry(rig, {.heads = 3, .kv_heads = 3, .dim = 16, .value_dim = 16, .page_size = 16});
  check_geometry(rig, {.heads = 5, .kv_heads = 1, .dim = 33, .value_dim = 33, .page_size = 1});
  check_geometry(rig, {.heads = 4, .kv_heads = 2, .dim = 7, .value_dim = 3, .page_size = 5});
  check_geometry(rig, {.heads = 2, .kv_heads = 1, .dim = 3, .value_dim = 20});
}

TEST_P(AttentionTest, WindowSoftcapSinks) {
  Rig rig(GetParam());
  for (const std::uint32_t window : {1u, 3u, 4u, 9u, 1000u}) check_geometry(rig, {.window = window});
  check_geometry(rig, {.scale = 2, .softcap = 1.5});
  check_geometry(rig, {.sinks = true});
  check_geometry(rig, {.window = 5, .scale = 1, .softcap = 3, .sinks = true});
}

TEST_P(AttentionTest, EveryTypeOfPages) {
  Rig rig(GetParam());
  for (const bp_type type : {BP_TYPE_F64, BP_TYPE_F32, BP_TYPE_F16, BP_TYPE_BF16}) {
    check_geometry(rig, {.kv_type = type});
  }
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  Rig rig(GetParam());
  Paged paged(rig, {.scale = 1e4}, {{0, 6}}, 0);
  paged.write();
  ASSERT_EQ(rig.run(BP_OP_ATTN_PREFILL, paged.attention_args(0, 1)), BP_OK) << rig.reason;
  for (const double value : rig.read(paged.out)) ASSERT_TRUE(std::isfinite(value));
}

TEST_P(AttentionTest, WritesOnlyTheSlotsItIsTold) {
  Rig rig(GetParam());
  Paged paged(rig, {}, {{0, 3}}, 0);
  paged.slots[3 + 1] = -1;  // group 1, token 1
  ASSERT_EQ(rig.run(BP_OP_KV_WRITE, paged.write_args()), BP_OK) << rig.reason;
  const Values pages = rig.read(paged.k_pages);
  std::size_t written = 0;
  for (const double value : pages) written += std::isnan(value) ? 0 : 1;
  EXPECT_EQ(written, 2u * 2 * 6) << "two tokens of two heads";
  const Values first = Paged::numbers(0, 0, 1, 12);
  const auto at = static_cast<std::size_t>(paged.slots[3]) * 12;
  EXPECT_EQ(
      Values(pages.begin() + static_cast<std::ptrdiff_t>(at), pages.begin() + static_cast<std::ptrdiff_t>(at) + 12),
      first);
}

// Expected bytes are those of gguf-py 0.19.0, quants.quantize(x, Q8_0).
TEST_P(AttentionTest, WritesBlocksOfBytes) {
  Rig rig(GetParam());
  Paged paged(rig, {.kv_heads = 1, .dim = 64, .value_dim = 32, .kv_type = BP_TYPE_Q8_0}, {{0, 1}}, 0);
  Values k, v(32, 1e-9);
  for (int i = 0; i < 32; ++i) k.push_back(static_cast<float>((i * 37 % 64 - 31) * 0.125 * 0.7));
  for (const double value : {127.0, -0.5, 0.5, 1.5, -1.5, 2.5, -126.5, 0.25}) k.push_back(value);
  for (int i = 0; i < 24; ++i) k.push_back((i * 29 % 50 - 25) * 1.25);
  const int expected[] = {165, 37,  -123, 24,  -83, 64, -44, 103, -4,   -111, 36,  -71,  75,  -32, 115, 8,   -99,
                          48,  -60, 87,   -20, 127, 20, -87, 60,  -48,  99,   -8,  -115, 32,  -75, 71,  -36, 111,
                          0,   60,  127,  -1,  1,   2,  -2,  3,   -127, 0,    -31, 5,    -21, 15,  -11, 25,  -1,
                          -28, 9,   -18,  19,  -8,  29, 3,   -24, 13,   -14,  23,  -4,   -30, 6,   -20, 16,  -10};
  paged.k_new = rig.reals({1, 1, 64}, k);
  paged.v_new = rig.reals({1, 1, 32}, v);
  ASSERT_EQ(rig.run(BP_OP_KV_WRITE, paged.write_args()), BP_OK) << rig.reason;
  const auto row_of = [&](const bp_tensor& pages) {
    return rig.address(pages) + paged.slots[1] / 4 * pages.stride[0] + paged.slots[1] % 4 * pages.stride[1];
  };
  const std::byte* row = row_of(paged.k_pages);
  for (std::size_t i = 0; i < 68; ++i) EXPECT_EQ(row[i], static_cast<std::byte>(expected[i])) << "byte " << i;
  // What is too small for the scale's F16 is zero; what is no number makes its block none.
  row = row_of(paged.v_pages);
  for (std::size_t i = 0; i < 34; ++i) EXPECT_EQ(row[i], std::byte{0}) << "byte " << i;
  v[7] = std::numeric_limits<double>::infinity();
  paged.v_new = rig.reals({1, 1, 32}, v);
  ASSERT_EQ(rig.run(BP_OP_KV_WRITE, paged.write_args()), BP_OK) << rig.reason;
  EXPECT_EQ(row[0], std::byte{0});
  EXPECT_EQ(row[1], std::byte{0x7e});
}

}  // namespace
}  // namespace backplane::cpu_test
