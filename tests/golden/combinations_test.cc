// The models of the shared data on the test device with what is optional taken away in turn. Small random models have
// all of it, see tests/unit/combinations.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/engine/engine.h"
#include "core/engine/scorer.h"
#include "golden_file.h"
#include "models/load.h"
#include "tests/support/opaque_device.h"
#include "tests/unit/combinations/device_kinds.h"

namespace backplane {
namespace {

using test::DeviceKind;
using test::GoldenCase;
using test::GoldenForm;

// Each model takes every fourth kind of device, the next one others.
std::vector<DeviceKind> kinds_for(std::size_t form) {
  std::vector<DeviceKind> kinds;
  for (const DeviceKind& kind : test::device_kinds()) {
    if (form++ % 4 == 0) kinds.push_back(kind);
  }
  return kinds;
}

// The worst difference of a logit.
double worst_logit(engine::Model& model, const GoldenCase& c) {
  engine::ScoreLine line;
  line.positions.which = engine::Positions::kList;
  std::vector<TokenId> all = c.prompt;
  all.insert(all.end(), c.greedy.begin(), c.greedy.end());
  for (const auto& [position, row] : c.logits) {
    if (position < all.size()) line.positions.list.push_back(position);
  }
  if (line.positions.list.empty()) return 0;
  line.ids.assign(all.begin(), all.begin() + line.positions.list.back() + 1);
  double worst = 0;
  engine::Scorer(model).score(std::span(&line, 1), {}, [&](const engine::ScoredRows& rows) {
    for (std::size_t i = 0; i < rows.positions.size(); ++i) {
      const auto got = rows.row(i);
      const std::vector<double>& want = c.logits.at(rows.positions[i]);
      for (std::size_t n = 0; n < got.size(); ++n) {
        const double difference = std::abs(got[n] - want.at(n));
        worst = std::isnan(difference) ? HUGE_VAL : std::max(worst, difference);
      }
    }
  });
  return worst;
}

// Up to the first token whose lead is not clear.
void expect_greedy(engine::Model& model, const GoldenCase& c, double tolerance) {
  std::size_t clear = 0;
  while (clear < std::min({c.greedy.size(), c.margins.size(), std::size_t{8}}) && c.margins[clear] > 2 * tolerance) {
    ++clear;
  }
  if (clear == 0) return;
  engine::Engine engine(model);
  engine::Request request;
  request.prompt = c.prompt;
  request.sampling.temperature = 0;
  request.max_tokens = static_cast<std::uint32_t>(clear);
  request.ignore_eos = true;
  engine.submit(std::move(request));
  std::vector<TokenId> got;
  while (!engine.idle()) {
    for (const engine::Event& event : engine.step()) {
      EXPECT_FALSE(event.error) << event.error->what();
      if (event.token >= 0) got.push_back(event.token);
    }
  }
  EXPECT_EQ(got, std::vector<TokenId>(c.greedy.begin(), c.greedy.begin() + static_cast<std::ptrdiff_t>(clear)));
}

TEST(CombinationsGoldenTest, LogitsAndTokensEqualTheReferences) {
  const auto forms = test::golden_forms("^(gpt2|llama|mistral|qwen2|qwen3$|stories260K|synth|tiny_gpt2)");
  if (forms.empty()) GTEST_SKIP() << "no shared data";
  const auto reference = test::open_device("cpu:f32");
  std::size_t models = 0, runs = 0;
  double worst = 0;
  for (const GoldenForm& form : forms) {
    if (form.config) continue;  // another spelling of the same model
    const models::ModelFile file(form.model);
    const test::Golden golden = test::read_golden(form.golden);
    for (const DeviceKind& kind : kinds_for(models++)) {
      SCOPED_TRACE(form.name + ", " + kind.group + ": " + kind.options);
      models::LoadOptions options;
      options.executor.policy = device::FallbackPolicy::kAllow;
      const auto model =
          models::load(file, test::open_opaque("opaque:f32", kind.options, kind.tables), reference, options);
      const double difference = worst_logit(*model, golden.cases.at(0));
      EXPECT_LE(difference, golden.tolerance);
      worst = std::max(worst, difference);
      expect_greedy(*model, golden.cases.at(0), golden.tolerance);
      ++runs;
    }
  }
  fmt::print("{} models, {} combinations run, worst difference {:.2g}\n", models, runs, worst);
}

}  // namespace
}  // namespace backplane
