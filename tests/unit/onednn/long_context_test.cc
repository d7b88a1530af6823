// Texts longer than the chunks in which attention is computed: the same bits however the work is cut, and close to the
// reference.
#include <gtest/gtest.h>

#include <cmath>

#include "core/engine/scorer.h"
#include "models/load.h"
#include "plugins/host/host_table.h"
#include "tests/support/devices.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/device/runs.h"

namespace backplane {
namespace {

constexpr std::uint32_t kLong = 600;  // more than two chunks of 256 keys

struct Case {
  const char* name;
  test::TinyLlama shape;
  DType kv = DType::kF16;
};

class LongContext : public testing::TestWithParam<Case> {
 protected:
  LongContext() : path_(test::write_tiny_llama(folder_, shape())) {}

  static test::TinyLlama shape() {
    test::TinyLlama shape = GetParam().shape;
    shape.context = kLong + 8;
    return shape;
  }

  std::unique_ptr<models::LoadedModel> load(const std::string& device) const {
    const auto chosen = test::open_device(device), reference = test::open_device("cpu:f32");
    models::LoadOptions options;
    options.context = kLong + 8;
    options.max_sequences = 3;
    options.max_step_tokens = 2 * kLong;
    options.kv_type = GetParam().kv;
    options.executor.policy = device::FallbackPolicy::kDeny;
    return models::load(models::ModelFile(path_), chosen, reference, options);
  }

  // Logits of the long text at some places, computed in chunks or beside two other texts.
  static std::vector<double> score(engine::Model& model, const engine::ScoreOptions& how) {
    std::vector<engine::ScoreLine> lines = {{test::tokens_of(kLong, 1), {engine::Positions::kList, {}}}};
    lines[0].positions.list = {0, 15, 16, 254, 255, 256, 257, 300, 511, 512, 513, kLong - 1};
    if (how.together) {
      lines.push_back({test::tokens_of(7, 2), {engine::Positions::kLast, {}}});
      lines.push_back({test::tokens_of(280, 3), {engine::Positions::kLast, {}}});
    }
    std::vector<double> out;
    engine::Scorer(model).score(lines, how, [&](const engine::ScoredRows& rows) {
      if (rows.line != 0) return;
      for (std::size_t i = 0; i < rows.positions.size(); ++i) {
        const auto row = rows.row(i);
        out.insert(out.end(), row.begin(), row.end());
      }
    });
    return out;
  }

  const test::TempFolder folder_;
  const std::filesystem::path path_;
};

TEST_P(LongContext, IsTheSameHoweverItIsCut) {
  const auto model = load("onednn:0");
  const std::vector<double> whole = score(*model, {});
  ASSERT_EQ(whole.size(), 12u * 96u);
  for (const std::uint32_t chunk : {1u, 7u, 100u, 256u, 301u}) {
    EXPECT_EQ(score(*model, {chunk, false}), whole) << "in chunks of " << chunk;
  }
  EXPECT_EQ(score(*model, {std::nullopt, true}), whole) << "beside others";
  for (const unsigned threads : {1u, 3u, 4u}) {
    plugins::set_host_threads(threads);
    const auto other = load("onednn:0");
    EXPECT_EQ(score(*other, {}), whole) << threads << " threads";
    EXPECT_EQ(score(*other, {1u, false}), whole) << threads << " threads, token by token";
  }
  plugins::set_host_threads(2);
}

// Keys and values that lie between two numbers of the cache's type may be rounded the other way; quantized weights are
// multiplied with activations of 8 bits, in rows of only 32 here.
TEST_P(LongContext, IsCloseToTheReference) {
  const std::vector<double> fast = score(*load("onednn:0"), {}), slow = score(*load("cpu:f32"), {});
  ASSERT_EQ(fast.size(), slow.size());
  const bool bytes = GetParam().shape.type == test::TinyType::kQ8_0 || GetParam().shape.type == test::TinyType::kQ5_0;
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < fast.size(); ++i) {
    largest = std::max(largest, std::fabs(slow[i]));
    worst = std::max(worst, std::fabs(fast[i] - slow[i]));
  }
  const DType kv = GetParam().kv;
  const double rounding = kv == DType::kF32 ? 2e-5 : kv == DType::kF16 ? 2e-4 : kv == DType::kBF16 ? 2e-3 : 1e-2;
  EXPECT_LT(worst, (bytes ? 0.1 : rounding) * largest);
  EXPECT_GT(largest, 0);
}

using test::TinyType;
const Case kCases[] = {{"f32_kv_f32", {.head_dim = 16}, DType::kF32},
                       {"f32_kv_f16", {.head_dim = 64}},
                       {"f16_kv_bf16", {.qk_norm = true, .type = TinyType::kF16, .head_dim = 24}, DType::kBF16},
                       {"q8_0", {.type = TinyType::kQ8_0, .head_dim = 64}},
                       {"q5_0_window", {.window = 300, .type = TinyType::kQ5_0, .head_dim = 32}},
                       {"window_20", {.window = 20, .head_dim = 32}, DType::kF32},
                       {"f32_kv_q8_0", {.head_dim = 64}, DType::kQ8_0},
                       {"f32_kv_q8_0_window", {.window = 300, .head_dim = 32}, DType::kQ8_0}};
INSTANTIATE_TEST_SUITE_P(Onednn, LongContext, testing::ValuesIn(kCases),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace backplane
