// Runs a model through all kinds of steps, to compare devices by what comes out.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/scorer.h"
#include "models/load.h"
#include "tests/support/devices.h"
#include "tests/support/expect_error.h"
#include "tests/support/opaque_device.h"
#include "tests/support/tiny_model.h"

namespace backplane::test {

struct Outputs {
  std::vector<double> logits;  // of ragged and of chunked prefill
  std::vector<TokenId> greedy;

  bool operator==(const Outputs&) const = default;
};

inline std::vector<TokenId> tokens_of(std::size_t n, std::uint64_t seed) {
  TinyRandom random(seed);
  std::vector<TokenId> ids(n);
  for (TokenId& id : ids) id = static_cast<TokenId>(random.bits() % 90);
  return ids;
}

// A second request joins while the first decodes: steps of both kinds, and mixed ones.
inline std::vector<TokenId> generate_two(engine::Model& model) {
  engine::Engine engine(model, {.max_sequences = 4, .token_budget = 16});
  std::vector<TokenId> first, second;
  const auto submit = [&](std::size_t n, std::uint64_t seed) {
    engine::Request request;
    request.prompt = tokens_of(n, seed);
    request.sampling.temperature = 0;
    request.max_tokens = 7;
    request.ignore_eos = true;
    return engine.submit(std::move(request));
  };
  const engine::RequestId id = submit(11, 5);
  for (int step = 0; !engine.idle(); ++step) {
    if (step == 2) submit(21, 6);
    for (const engine::Event& event : engine.step()) {
      if (event.error) throw *event.error;
      if (event.token >= 0) (event.request == id ? first : second).push_back(event.token);
    }
  }
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

inline Outputs run_all(engine::Model& model) {
  Outputs out;
  const auto score = [&](std::vector<engine::ScoreLine> lines, const engine::ScoreOptions& options) {
    engine::Scorer(model).score(lines, options, [&](const engine::ScoredRows& rows) {
      for (std::size_t i = 0; i < rows.positions.size(); ++i) {
        const auto row = rows.row(i);
        out.logits.insert(out.logits.end(), row.begin(), row.end());
      }
    });
  };
  const engine::Positions all{engine::Positions::kAll, {}};
  score({{tokens_of(5, 1), all}, {tokens_of(13, 2), all}, {tokens_of(1, 3), all}}, {std::nullopt, true});
  score({{tokens_of(29, 4), all}}, {4u, false});
  out.greedy = generate_two(model);
  return out;
}

inline std::unique_ptr<models::LoadedModel> load_on(const std::filesystem::path& path,
                                                    std::shared_ptr<device::Device> chosen,
                                                    device::ExecutorOptions executor = {},
                                                    std::shared_ptr<device::Device> reference = nullptr) {
  models::LoadOptions options;
  options.max_sequences = 4;
  options.max_step_tokens = 20;
  options.executor = std::move(executor);
  if (!reference) reference = open_device("cpu:f32");
  return models::load(models::ModelFile(path), std::move(chosen), std::move(reference), options);
}

inline device::ExecutorOptions policy(device::FallbackPolicy which) {
  device::ExecutorOptions options;
  options.policy = which;
  return options;
}

inline double worst_difference(const Outputs& a, const Outputs& b) {
  if (a.logits.size() != b.logits.size()) return HUGE_VAL;
  double worst = 0;
  for (std::size_t i = 0; i < a.logits.size(); ++i) {
    const double difference = std::abs(a.logits[i] - b.logits[i]);
    worst = std::isnan(difference) ? HUGE_VAL : std::max(worst, difference);
  }
  return worst;
}

// Where the best token leads by more than twice the bound, both choose it. Returns how many rows have such a token.
inline std::size_t expect_same_choices(const Outputs& got, const Outputs& want, std::size_t vocabulary, double bound) {
  std::size_t clear = 0;
  for (std::size_t begin = 0; begin + vocabulary <= std::min(got.logits.size(), want.logits.size());
       begin += vocabulary) {
    const auto from = static_cast<std::ptrdiff_t>(begin), to = static_cast<std::ptrdiff_t>(begin + vocabulary);
    const auto best = std::max_element(want.logits.begin() + from, want.logits.begin() + to);
    const bool tie = std::count_if(want.logits.begin() + from, want.logits.begin() + to,
                                   [&](double v) { return v >= *best - 2 * bound; }) > 1;
    if (tie) continue;
    ++clear;
    EXPECT_EQ(std::max_element(got.logits.begin() + from, got.logits.begin() + to) - got.logits.begin(),
              best - want.logits.begin())
        << "row " << begin / vocabulary;
  }
  return clear;
}

inline void expect_same(const Outputs& got, const Outputs& want, double tolerance = 1e-4) {
  EXPECT_LE(worst_difference(got, want), tolerance);
  EXPECT_EQ(got.greedy, want.greedy);
}

}  // namespace backplane::test
