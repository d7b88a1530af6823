// Sampling as requests see it: what one asks for is nobody else's concern.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/engine/generation.h"
#include "core/sample/logprobs.h"
#include "core/sample/sampler.h"
#include "tests/unit/engine/engine_fixture.h"

namespace backplane::engine {
namespace {

Request request(std::uint32_t i, sample::SamplingParams sampling = {}) {
  sampling.seed = i;
  return {.prompt = some_tokens(5, i), .sampling = std::move(sampling), .max_tokens = 8};
}

// Others that run beside what a test is about.
struct Others {
  explicit Others(Engine& engine) {
    for (std::uint32_t i = 0; i < 3; ++i) ids.push_back(engine.submit(request(i, {.temperature = 1})));
  }
  void expect_unharmed(const Outcomes& outcomes) const {
    for (std::uint32_t i = 0; i < 3; ++i) {
      FakeModel model;
      Engine engine(model);
      EXPECT_EQ(outcomes.at(ids[i]).ids, generate(engine, request(i, {.temperature = 1})).ids);
      EXPECT_EQ(outcomes.at(ids[i]).finish, FinishReason::kLength);
    }
  }
  std::vector<RequestId> ids;
};

// https://github.com/vllm-project/vllm/pull/16529: a token outside of the vocabulary ended the engine.
TEST(Sampling, OneBadParameterHarmsNobody) {
  FakeModel model;
  Engine engine(model);
  const Others others(engine);
  Outcomes outcomes;
  collect(outcomes, engine.step());
  const auto vocabulary = static_cast<TokenId>(model.shape().vocab_size);
  for (const TokenId bad : {-1, vocabulary, std::numeric_limits<TokenId>::max()}) {
    EXPECT_THROW(engine.submit(request(9, {.logit_bias = {{bad, 1}}})), Error);
    EXPECT_THROW(engine.submit(request(9, {.allowed_ids = {bad}})), Error);
    EXPECT_THROW(engine.submit(request(9, {.bad_words = {{1, bad}}})), Error);
    Request stop = request(9);
    stop.stop_ids = {bad};
    EXPECT_THROW(engine.submit(stop), Error);
  }
  EXPECT_THROW(engine.submit(request(9, {.temperature = std::numeric_limits<double>::quiet_NaN()})), Error);
  EXPECT_EQ(engine.requests(), 3u);
  while (!engine.idle()) collect(outcomes, engine.step());
  others.expect_unharmed(outcomes);
}

TEST(Sampling, WhoForbidsEverythingEndsAlone) {
  FakeModel model;
  Engine engine(model);
  const Others others(engine);
  std::vector<std::vector<TokenId>> all;
  for (TokenId id = 0; id < static_cast<TokenId>(model.shape().vocab_size); ++id) all.push_back({id});
  const RequestId id = engine.submit(request(9, {.bad_words = all}));
  const Outcomes outcomes = run_to_end(engine);
  EXPECT_EQ(outcomes.at(id).finish, FinishReason::kError);
  EXPECT_EQ(outcomes.at(id).error->code(), ErrorCode::kUsage);
  others.expect_unharmed(outcomes);
  EXPECT_TRUE(all_pages_free(engine));
}

// Only seed, choice and the number of a token count, not what runs beside.
TEST(Sampling, TheChoiceGivesAnotherAnswer) {
  std::vector<std::vector<TokenId>> alone;
  for (std::uint32_t choice = 0; choice < 4; ++choice) {
    FakeModel model;
    Engine engine(model);
    alone.push_back(generate(engine, request(3, {.temperature = 2, .choice = choice})).ids);
    for (std::uint32_t other = 0; other < choice; ++other) EXPECT_NE(alone[other], alone[choice]);
  }
  FakeModel model;
  Engine engine(model);
  std::vector<RequestId> ids;
  for (std::uint32_t choice = 4; choice-- > 0;) {
    ids.push_back(engine.submit(request(3, {.temperature = 2, .choice = choice})));
  }
  const Outcomes outcomes = run_to_end(engine);
  for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(outcomes.at(ids[i]).ids, alone[3 - i]);
}

TEST(Sampling, AnswersAreThoseOfTheChoices) {
  FakeModel model;
  Engine engine(model);
  Request asked = request(3, {.temperature = 2, .repetition_penalty = 1.2});
  asked.n = 3;
  asked.top_logprobs = 2;
  asked.prompt_logprobs = 1;
  std::vector<std::uint32_t> told(asked.n);
  const auto answers = generate_all(engine, asked, [&](const Event& event) { ++told[event.answer]; });
  ASSERT_EQ(answers.size(), 3u);
  for (std::uint32_t i = 0; i < 3; ++i) {
    Request alone = request(3, {.temperature = 2, .repetition_penalty = 1.2, .choice = i});
    alone.top_logprobs = 2;
    const Generation expected = generate(engine, alone);
    EXPECT_EQ(answers[i].ids, expected.ids);
    EXPECT_EQ(answers[i].logprobs, expected.logprobs);
    EXPECT_EQ(answers[i].top, expected.top);
    EXPECT_EQ(answers[i].finish, FinishReason::kLength);
    EXPECT_EQ(told[i], 8u);
    EXPECT_EQ(answers[i].steps.size(), 8u);
    ASSERT_EQ(answers[i].prompt.size(), i == 0 ? 4u : 0u);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    const auto logits =
        model.expected({asked.prompt.begin(), asked.prompt.begin() + static_cast<std::ptrdiff_t>(i) + 1});
    EXPECT_EQ(answers[0].prompt[i].logprob, sample::token_logprob(logits, asked.prompt[i + 1]));
    EXPECT_EQ(answers[0].prompt[i].top[0].id, sample::argmax(logits));
  }
  EXPECT_THROW(generate(engine, asked), Error);
  EXPECT_TRUE(engine.idle());
}

TEST(Sampling, AnInterruptEndsEveryAnswer) {
  FakeModel model;
  Engine engine(model);
  Request asked = request(3, {.temperature = 2});
  asked.n = 3;
  std::atomic<bool> interrupt = false;
  const auto answers = generate_all(
      engine, asked, [&](const Event& event) { interrupt = event.answer == 2; }, &interrupt);
  for (const Generation& answer : answers) EXPECT_EQ(answer.finish, FinishReason::kCanceled);
  EXPECT_LT(answers[2].ids.size(), 8u);
  EXPECT_TRUE(engine.idle());
  EXPECT_TRUE(all_pages_free(engine));
}

// Penalties and bad words see prompt and output, whatever steps these were computed in.
TEST(Sampling, PenaltiesDoNotDependOnTheSteps) {
  const auto prompt = some_tokens(30, 5);
  const sample::SamplingParams sampling{
      .temperature = 1.5, .repetition_penalty = 1.5, .frequency_penalty = 1, .bad_words = {{3}, {prompt[29], 4}}};
  std::vector<std::vector<TokenId>> all;
  for (const std::uint32_t budget : {4u, 7u, 2048u}) {
    FakeModel model;
    Engine engine(model, {.token_budget = budget});
    const RequestId other = engine.submit(request(1, {.temperature = 1}));
    const RequestId id = engine.submit({.prompt = prompt, .sampling = sampling, .max_tokens = 20});
    const Outcomes outcomes = run_to_end(engine);
    EXPECT_EQ(outcomes.at(other).ids.size(), 8u);
    all.push_back(outcomes.at(id).ids);
    EXPECT_EQ(std::count(all.back().begin(), all.back().end(), 3), 0);
  }
  EXPECT_EQ(all[0], all[1]);
  EXPECT_EQ(all[0], all[2]);
  // As the sampler alone draws, token by token.
  FakeModel model;
  sample::Sampler sampler(sampling, {.prompt = prompt});
  auto history = prompt;
  for (const TokenId id : all[0]) {
    ASSERT_EQ(sampler.sample(model.expected(history)), id);
    sampler.accept(id);
    history.push_back(id);
  }
}

// Reported log-probabilities are the model's own, whatever is done to choose a token.
TEST(Sampling, LogprobsAreTheModelsOwn) {
  FakeModel model;
  Engine engine(model);
  Request asked = request(4, {.temperature = 0.3, .top_k = 3, .repetition_penalty = 2, .logit_bias = {{5, 100}}});
  asked.top_logprobs = 4;
  const Generation g = generate(engine, asked);
  auto history = asked.prompt;
  for (std::size_t i = 0; i < g.ids.size(); ++i) {
    const auto logits = model.expected(history);
    EXPECT_EQ(g.ids[i], 5);
    EXPECT_EQ(g.logprobs[i], sample::token_logprob(logits, 5));
    EXPECT_EQ(g.top[i].size(), 4u);
    EXPECT_EQ(g.top[i][0].id, sample::argmax(logits));
    history.push_back(5);
  }
}

// https://github.com/vllm-project/vllm/issues/5907: the scores of a long prompt took all memory at once.
TEST(Sampling, ScoresOfAPromptKeepTheLogitsOfAStepSmall) {
  FakeModel model({.vocab_size = 1 << 21});  // four rows are what a step may hold
  Engine engine(model, {.max_sequences = 2});
  const Generation scored = generate(engine, {.prompt = some_tokens(10, 1), .max_tokens = 2, .prompt_logprobs = 1});
  EXPECT_EQ(scored.prompt.size(), 9u);
  ASSERT_EQ(scored.steps.size(), 4u);
  const std::uint32_t rows[] = {4, 4, 2, 1};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(scored.steps[i].rows, rows[i]);
}

}  // namespace
}  // namespace backplane::engine
