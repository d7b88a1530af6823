// The models of the shared data on the test device that is nothing like a CPU.
#include <gtest/gtest.h>

#include <cmath>

#include "core/engine/scorer.h"
#include "golden_file.h"
#include "models/load.h"
#include "tests/support/opaque_device.h"

namespace backplane {
namespace {

using test::GoldenCase;
using test::GoldenForm;

// Rows of the case's positions that came out further than the tolerance from the reference.
void check_case(engine::Model& model, const GoldenCase& c, double tolerance, const std::string& where) {
  engine::ScoreLine line;
  line.positions.which = engine::Positions::kList;
  std::vector<TokenId> all = c.prompt;
  all.insert(all.end(), c.greedy.begin(), c.greedy.end());
  for (const auto& [position, row] : c.logits) {
    if (position < all.size()) line.positions.list.push_back(position);
  }
  if (line.positions.list.empty()) return;
  line.ids.assign(all.begin(), all.begin() + line.positions.list.back() + 1);
  std::size_t seen = 0;
  engine::Scorer(model).score(std::span(&line, 1), {}, [&](const engine::ScoredRows& rows) {
    for (std::size_t i = 0; i < rows.positions.size(); ++i, ++seen) {
      const auto got = rows.row(i);
      const std::vector<double>& want = c.logits.at(rows.positions[i]);
      ASSERT_EQ(got.size(), want.size()) << where;
      double worst = 0;
      for (std::size_t n = 0; n < got.size(); ++n) worst = std::max(worst, std::abs(got[n] - want[n]));
      EXPECT_LE(worst, tolerance) << where << " position " << rows.positions[i];
    }
  });
  EXPECT_EQ(seen, line.positions.list.size()) << where;
}

TEST(OpaqueGoldenTest, LogitsEqualTheReferences) {
  const auto forms = test::golden_forms("^(gpt2|llama|mistral|qwen2|qwen3$|stories260K|synth|tiny_gpt2)");
  if (forms.empty()) GTEST_SKIP() << "no shared data";
  const auto reference = test::open_device("cpu:f32");
  for (const GoldenForm& form : forms) {
    if (form.config) continue;  // another spelling of the same model
    models::LoadOptions options;
    options.executor.policy = device::FallbackPolicy::kDeny;
    const auto model = models::load(models::ModelFile(form.model), test::open_opaque(), reference, options);
    const test::Golden golden = test::read_golden(form.golden);
    for (const GoldenCase& c : golden.cases) check_case(*model, c, golden.tolerance, form.name);
  }
}

}  // namespace
}  // namespace backplane
