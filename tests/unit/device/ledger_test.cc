// What fell back, how often, why and at what cost; and what the three policies do about it.
#include "tests/unit/device/runs.h"

namespace backplane {
namespace {

using device::Fallback;
using device::FallbackPolicy;
using test::load_on;
using test::open_opaque;

class LedgerTest : public testing::Test {
 protected:
  LedgerTest() : path_(write_tiny_llama(folder_, {.layers = 1})) {}

  std::unique_ptr<models::LoadedModel> load(const std::string& options, FallbackPolicy policy) {
    return load_on(path_, open_opaque("opaque:f32", options), test::policy(policy));
  }
  // After one prefill of five tokens of two sequences.
  std::vector<Fallback> after_a_step(const std::string& options) {
    const auto model = load(options, FallbackPolicy::kAllow);
    EXPECT_TRUE(model->executor().ledger().entries().empty()) << "planning runs nothing";
    std::vector<engine::ScoreLine> lines{{test::tokens_of(3, 1), {}}, {test::tokens_of(2, 2), {}}};
    engine::Scorer(*model).score(lines, {std::nullopt, true}, [](const engine::ScoredRows&) {});
    auto entries = model->executor().ledger().entries();
    std::sort(entries.begin(), entries.end(), [](const Fallback& a, const Fallback& b) { return a.op < b.op; });
    return entries;
  }

  test::TempFolder folder_;
  std::filesystem::path path_;
};

TEST_F(LedgerTest, CountsReasonsAndBytesBothWays) {
  const auto entries = after_a_step("without=NORM");
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].op, "NORM");
  EXPECT_EQ(entries[0].device, "cpu:f32");
  EXPECT_EQ(entries[0].shape, "prefill");
  EXPECT_EQ(entries[0].reason, "turned off by an option");
  EXPECT_EQ(entries[0].count, 2u) << "before attention, as there is no QKV_ROPE_WRITE for heads of 8, and before the "
                                     "head; the third is a part of GATEUP_GLU";
  // [5,32] there and back, and the two rows for the head there and back.
  EXPECT_EQ(entries[0].bytes_staged, 2u * 5 * 32 * 4 + 2u * 2 * 32 * 4);
  EXPECT_GT(entries[0].seconds, 0);
}

TEST_F(LedgerTest, NeighborsThatFallBackTogetherStageOnce) {
  const auto entries = after_a_step("no_kv=1");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].op, "ATTN_PREFILL");
  EXPECT_EQ(entries[0].bytes_staged, 2u * 5 * 4 * 8 * 4) << "queries there, results back";
  EXPECT_EQ(entries[1].op, "KV_WRITE");
  EXPECT_EQ(entries[1].bytes_staged, 2u * 5 * 2 * 8 * 4) << "keys and values there, nothing back";
  EXPECT_NE(entries[1].reason.find("doesn't own the KV layout"), std::string::npos) << entries[1].reason;
}

TEST_F(LedgerTest, NothingIsStagedWhereMemoryIsShared) {
  const auto entries = after_a_step("visible=1,without=NORM+LINEAR");
  ASSERT_EQ(entries.size(), 2u);
  for (const Fallback& entry : entries) EXPECT_EQ(entry.bytes_staged, 0u) << entry.op;
}

TEST_F(LedgerTest, KindsOfSteps) {
  const auto model = load("without=ROPE", FallbackPolicy::kAllow);
  test::generate_two(*model);
  std::set<std::string> shapes;
  for (const Fallback& entry : model->executor().ledger().entries()) shapes.insert(entry.shape);
  EXPECT_EQ(shapes, (std::set<std::string>{"prefill", "decode", "mixed"}));
  model->executor().ledger().clear();
  EXPECT_TRUE(model->executor().ledger().entries().empty());
}

TEST_F(LedgerTest, FusedOpsThatRunAsTheirPartsAreNoFallbacks) {
  EXPECT_TRUE(after_a_step("without=LINEAR_ADD+GATEUP_GLU").empty());
  EXPECT_NO_THROW(load("without=LINEAR_ADD+GATEUP_GLU", FallbackPolicy::kDeny));
}

TEST_F(LedgerTest, DenyNamesTheOpAndTheReason) {
  EXPECT_ERROR(load("without=ROPE", FallbackPolicy::kDeny), ErrorCode::kDevice,
               "ROPE (layers.0.attention.q_rope) is not supported: turned off by an option");
  EXPECT_ERROR(load("no_kv=1", FallbackPolicy::kDeny), ErrorCode::kDevice, "KV_WRITE (layers.0.attention.kv_write)");
}

TEST_F(LedgerTest, CastsThatTheDeviceLacksSendTheOpAway) {
  EXPECT_ERROR(load("want_f16=NORM,without=CAST", FallbackPolicy::kDeny), ErrorCode::kDevice,
               "takes activations in F16 only, and can't cast them");
  EXPECT_NO_THROW(load("want_f16=NORM", FallbackPolicy::kDeny));
}

TEST_F(LedgerTest, WarnSaysItOnceAndAllowNothing) {
  testing::internal::CaptureStderr();
  load("without=ROPE+GLU+GATEUP_GLU", FallbackPolicy::kWarn);
  const std::string warned = testing::internal::GetCapturedStderr();
  EXPECT_NE(warned.find("opaque:f32 lacks GLU, ROPE: they run on cpu:f32"), std::string::npos) << warned;
  EXPECT_EQ(std::count(warned.begin(), warned.end(), '\n'), 1) << warned;
  testing::internal::CaptureStderr();
  load("without=ROPE+GLU+GATEUP_GLU", FallbackPolicy::kAllow);
  load("", FallbackPolicy::kWarn);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Kernels, AreCountedByOpStepAndName) {
  device::Ledger ledger;
  std::size_t place = 77;  // wherever it points: only where to look first
  const std::string here = "cuda:0", there = "cuda:1";
  static const char* const kDecode = "decode";
  static const char* const kFew = "few";
  static const char* const kRude = "a\nname of more than sixty-three bytes, which a plugin may give us: bounded";
  ledger.took(BP_OP_LINEAR, here, kDecode, kFew, 2, place);
  ledger.took(BP_OP_LINEAR, here, kDecode, kFew, 1, place);
  ledger.took(BP_OP_LINEAR, there, kDecode, kFew, 7, place);
  ledger.took(BP_OP_EMBED, here, kDecode, kRude, 1, place);
  const std::vector<device::KernelUse> uses = ledger.kernels();
  ASSERT_EQ(uses.size(), 3u);
  EXPECT_EQ(uses[0].op, "EMBED");
  EXPECT_EQ(uses[0].kernel, "a name of more than sixty-three bytes, which a plugin may give ");
  EXPECT_EQ(uses[1].op, "LINEAR");
  EXPECT_EQ(uses[1].fewest_tokens, 1u);
  EXPECT_EQ(uses[1].most_tokens, 2u);
  EXPECT_EQ(uses[1].count, 2u);
  EXPECT_EQ(uses[2].device, "cuda:1");
  ledger.clear();
  EXPECT_TRUE(ledger.kernels().empty());
}

}  // namespace
}  // namespace backplane
