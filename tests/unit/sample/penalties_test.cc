#include <gtest/gtest.h>

#include <vector>

#include "core/sample/penalties.h"
#include "core/sample/sampler.h"

namespace backplane::sample {
namespace {

// vLLM's definition, token by token: the repetition penalty for what is in prompt or output, the others by the number
// of times in the output.
TEST(Penalties, MatchTheFormula) {
  const std::vector<TokenId> prompt{0, 1, 1, 1, 4, 5}, output{1, 2, 2, 5, 2};
  const std::vector<double> logits{2.5, -1.5, 0.75, 4, -3, 1, 0, -0.5};
  for (const double repetition : {1.0, 1.3, 0.6}) {
    for (const double frequency : {0.0, 0.5, -2.0}) {
      for (const double presence : {0.0, 1.25, -0.75}) {
        Penalties penalties(
            {.repetition_penalty = repetition, .presence_penalty = presence, .frequency_penalty = frequency}, prompt);
        EXPECT_EQ(penalties.any(), repetition != 1 || frequency != 0 || presence != 0);
        for (const TokenId id : output) penalties.accept(id);
        std::vector<double> row = logits;
        penalties.apply(row);
        for (std::size_t i = 0; i < row.size(); ++i) {
          const auto times = [&](const std::vector<TokenId>& ids) {
            return std::count(ids.begin(), ids.end(), static_cast<TokenId>(i));
          };
          double expected = logits[i];
          if (times(prompt) + times(output) > 0)
            expected = expected < 0 ? expected * repetition : expected / repetition;
          expected -= frequency * static_cast<double>(times(output));
          if (times(output) > 0) expected -= presence;
          EXPECT_DOUBLE_EQ(row[i], expected) << i;
        }
      }
    }
  }
}

TEST(Penalties, ChangeWhatGreedyTakes) {
  const std::vector<double> logits{3, 2.9, 2.8};
  Sampler sampler({.presence_penalty = 1, .frequency_penalty = 0.5});
  std::vector<TokenId> ids;
  for (int n = 0; n < 6; ++n, sampler.accept(ids.back())) ids.push_back(sampler.sample(logits));
  EXPECT_EQ(ids, (std::vector<TokenId>{0, 1, 2, 0, 1, 2}));
}

// A token of the prompt is penalized by repetition_penalty alone.
TEST(Penalties, PromptTokensAreNoOutput) {
  const std::vector<TokenId> prompt{0, 0, 0, 0};
  const std::vector<double> logits{3, 2};
  EXPECT_EQ(Sampler({.presence_penalty = 2, .frequency_penalty = 2}, {.prompt = prompt}).sample(logits), 0);
  EXPECT_EQ(Sampler({.repetition_penalty = 2}, {.prompt = prompt}).sample(logits), 1);
}

}  // namespace
}  // namespace backplane::sample
