// KV_WRITE and attention over shuffled pages, against the formula in double.
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

}  // namespace
}  // namespace backplane::cpu_test
