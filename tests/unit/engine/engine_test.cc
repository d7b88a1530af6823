#include "core/engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/engine/generation.h"
#include "core/sample/logprobs.h"
#include "tests/unit/engine/engine_fixture.h"

namespace backplane::engine {
namespace {

TEST(Engine, GivesTheModelsTokens) {
  FakeModel model;
  Engine engine(model);
  EXPECT_TRUE(engine.idle());
  const auto prompt = some_tokens(30, 1);
  const RequestId id = engine.submit({.prompt = prompt, .max_tokens = 12});
  const Outcome outcome = run_to_end(engine).at(id);
  EXPECT_EQ(outcome.ids, model.greedy(prompt, 12));
  EXPECT_EQ(outcome.finish, FinishReason::kLength);
  EXPECT_TRUE(outcome.logprobs.empty());
  EXPECT_TRUE(all_pages_free(engine));
  EXPECT_EQ(model.rope_rows_held(), 0);
}

TEST(Engine, RecordsTheStepsThatRan) {
  FakeModel model;
  Engine engine(model, {.token_budget = 8});
  engine.submit({.prompt = some_tokens(20, 1), .max_tokens = 3});
  run_to_end(engine);
  const auto& records = engine.steps().records();
  ASSERT_EQ(records.size(), model.steps().size());
  ASSERT_EQ(records.size(), 5u);
  const std::uint32_t tokens[] = {8, 8, 4, 1, 1}, rows[] = {0, 0, 1, 1, 1}, decodes[] = {0, 0, 0, 1, 1};
  const std::uint64_t cached[] = {0, 8, 16, 20, 21};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(records[i].tokens, tokens[i]);
    EXPECT_EQ(records[i].rows, rows[i]);
    EXPECT_EQ(records[i].n_decode, decodes[i]);
    EXPECT_EQ(records[i].cached, cached[i]);
    EXPECT_EQ(records[i].sequences, 1u);
  }
}

struct Setting {
  std::vector<std::uint32_t> windows, pages;
  std::uint32_t budget, max_sequences;
};

class EngineSettings : public testing::TestWithParam<Setting> {};

// Requests of all lengths that arrive while others run: each gives what it would alone.
TEST_P(EngineSettings, EveryRequestGivesItsOwnTokensInAnyCompany) {
  const Setting& setting = GetParam();
  FakeModel model({.windows = setting.windows, .pages = setting.pages});
  Engine engine(model, {.max_sequences = setting.max_sequences, .token_budget = setting.budget});
  const auto groups = static_cast<std::uint32_t>(setting.windows.size());
  std::map<RequestId, std::vector<TokenId>> expected;
  Outcomes outcomes;
  std::mt19937 random(setting.budget);
  for (std::uint32_t i = 0; i < 40; ++i) {
    const auto prompt = some_tokens(1 + random() % 25, i);
    const std::uint32_t n = 1 + random() % 10;
    expected[engine.submit({.prompt = prompt, .max_tokens = n})] = model.greedy(prompt, n);
    for (std::uint32_t steps = random() % 3; steps > 0; --steps) collect(outcomes, engine.step());
  }
  for (const auto& [id, outcome] : run_to_end(engine)) {
    Outcome& sum = outcomes[id];
    sum.ids.insert(sum.ids.end(), outcome.ids.begin(), outcome.ids.end());
    sum.finish = outcome.finish;
  }
  for (const auto& [id, ids] : expected) {
    EXPECT_EQ(outcomes[id].ids, ids);
    EXPECT_EQ(outcomes[id].finish, FinishReason::kLength);
  }
  EXPECT_TRUE(all_pages_free(engine, groups));
  EXPECT_EQ(model.rope_rows_held(), 0);
  const auto& records = engine.steps().records();
  EXPECT_TRUE(
      std::all_of(records.begin(), records.end(), [&](const StepRecord& r) { return r.tokens <= setting.budget; }));
  if (setting.max_sequences > 1 && setting.budget > 1) {
    EXPECT_TRUE(std::any_of(records.begin(), records.end(),
                            [](const StepRecord& r) { return r.n_decode > 0 && r.sequences > r.n_decode; }));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, EngineSettings,
    testing::Values(Setting{{0}, {100}, 64, 64}, Setting{{0}, {100}, 5, 4}, Setting{{0}, {100}, 1, 1},
                    Setting{{0}, {9}, 16, 64},            // a pool that holds the largest request and little more
                    Setting{{6}, {30}, 8, 64},            // all layers behind a window
                    Setting{{0, 6, 1}, {20, 9, 5}, 8, 6}  // three groups, each with its own pages
                    ));

TEST(Engine, SlidingWindowsKeepFewPages) {
  FakeModel model({.max_context = 200, .windows = {6}, .pages = {4}});
  Engine engine(model, {.token_budget = 4});
  const auto prompt = some_tokens(100, 3);
  const RequestId id = engine.submit({.prompt = prompt, .max_tokens = 50});
  EXPECT_EQ(run_to_end(engine).at(id).ids, model.greedy(prompt, 50));
}

TEST(Engine, SeedsGiveTheSameTokensAloneAndInABatch) {
  const auto request = [](std::uint32_t i) {
    return Request{.prompt = some_tokens(3 + i % 7, i),
                   .sampling = {.temperature = 1.5, .top_k = 15, .top_p = 0.95, .seed = i},
                   .max_tokens = 20};
  };
  std::vector<std::vector<TokenId>> alone;
  for (std::uint32_t i = 0; i < 12; ++i) {
    FakeModel model;
    Engine engine(model, {.token_budget = 2});
    alone.push_back(generate(engine, request(i)).ids);
  }
  EXPECT_EQ(std::set(alone.begin(), alone.end()).size(), 12u);
  FakeModel model;
  Engine engine(model, {.token_budget = 16});
  std::vector<RequestId> ids;
  for (std::uint32_t i = 0; i < 12; ++i) ids.push_back(engine.submit(request(i)));
  Outcomes outcomes = run_to_end(engine);
  for (std::uint32_t i = 0; i < 12; ++i) EXPECT_EQ(outcomes[ids[i]].ids, alone[i]);
  EXPECT_GT(engine.steps().records()[4].n_decode, 1u);
}

TEST(Engine, DrawsTokenNWithCounterN) {
  FakeModel model;
  Engine engine(model, {.token_budget = 4});
  const sample::SamplingParams sampling{.temperature = 2, .seed = 77};
  auto history = some_tokens(10, 6);
  const Generation g = generate(engine, {.prompt = history, .sampling = sampling, .max_tokens = 15});
  sample::Sampler sampler(sampling);
  for (std::size_t n = 0; n < 15; ++n) {
    history.push_back(sampler.sample(model.expected(history)));
    sampler.accept(history.back());
    EXPECT_EQ(g.ids[n], history.back());
  }
}

TEST(Engine, EndTokensEndTheText) {
  FakeModel model;
  Engine engine(model);
  const auto prompt = some_tokens(9, 4);
  const auto free = model.greedy(prompt, 20);
  const TokenId last = free[6];
  const auto first = static_cast<std::size_t>(std::find(free.begin(), free.end(), last) - free.begin());
  const std::vector<TokenId> until(free.begin(), free.begin() + static_cast<std::ptrdiff_t>(first) + 1);

  const Generation by_stop_id = generate(engine, {.prompt = prompt, .max_tokens = 20, .stop_ids = {last}});
  EXPECT_EQ(by_stop_id.ids, until);
  EXPECT_EQ(by_stop_id.finish, FinishReason::kStop);
  EXPECT_EQ(generate(engine, {.prompt = prompt, .max_tokens = 20, .eos_ids = {last}}).ids, until);
  const Generation ignored =
      generate(engine, {.prompt = prompt, .max_tokens = 20, .eos_ids = {last}, .ignore_eos = true});
  EXPECT_EQ(ignored.ids, free);
  EXPECT_EQ(ignored.finish, FinishReason::kLength);
  // Stop ids are the caller's own wish, which ignore_eos does not touch.
  EXPECT_EQ(generate(engine, {.prompt = prompt, .max_tokens = 20, .ignore_eos = true, .stop_ids = {last}}).ids, until);
}

TEST(Engine, FillsTheContextExactly) {
  FakeModel model({.max_context = 32, .pages = {8}});
  Engine engine(model);
  const auto prompt = some_tokens(30, 4);
  const Generation full = generate(engine, {.prompt = prompt});
  EXPECT_EQ(full.ids, model.greedy(prompt, 3));
  EXPECT_EQ(full.finish, FinishReason::kLength);
  EXPECT_EQ(generate(engine, {.prompt = some_tokens(32, 4), .max_tokens = 9}).ids.size(), 1u);
  EXPECT_THROW(engine.submit({.prompt = some_tokens(33, 4)}), Error);
  EXPECT_TRUE(engine.idle());
  EXPECT_EQ(model.rope_rows_held(), 0);
}

TEST(Engine, RefusesWhatAnEmptyPoolCannotHoldAndServesTheNext) {
  FakeModel model({.pages = {5}});
  Engine engine(model);
  EXPECT_EQ(engine.limits().kv_longest, 20u);
  try {
    engine.submit({.prompt = some_tokens(21, 1), .max_tokens = 1});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kCapacity);
    EXPECT_NE(std::string(e.what()).find("20"), std::string::npos);
  }
  const auto prompt = some_tokens(20, 1);
  EXPECT_EQ(generate(engine, {.prompt = prompt, .max_tokens = 1}).ids, model.greedy(prompt, 1));
}

TEST(Engine, RequestsWaitForARopeRow) {
  FakeModel model({.long_from = 1, .rope_rows = 2});
  Engine engine(model);
  std::map<RequestId, std::vector<TokenId>> expected;
  for (std::uint32_t i = 0; i < 20; ++i) {
    const auto prompt = some_tokens(3 + i % 5, i);
    expected[engine.submit({.prompt = prompt, .max_tokens = 6})] = model.greedy(prompt, 6, prompt.size() + 6);
  }
  const Outcomes outcomes = run_to_end(engine);
  for (const auto& [id, ids] : expected) EXPECT_EQ(outcomes.at(id).ids, ids);
  EXPECT_EQ(model.rope_rows_held(), 0);
}

TEST(Engine, ARequestForWhichThereIsNoRopeRowFails) {
  FakeModel model({.rope_rows = 0});
  Engine engine(model);
  const RequestId a = engine.submit({.prompt = some_tokens(3, 1)}), b = engine.submit({.prompt = some_tokens(3, 2)});
  const Outcomes outcomes = run_to_end(engine);
  EXPECT_EQ(outcomes.at(a).finish, FinishReason::kError);
  EXPECT_EQ(outcomes.at(b).error->code(), ErrorCode::kCapacity);
  EXPECT_TRUE(all_pages_free(engine));
}

TEST(Engine, LogprobsAreOfTheModelsDistribution) {
  FakeModel model;
  Engine engine(model);
  auto history = some_tokens(9, 4);
  const Generation g = generate(
      engine,
      {.prompt = history, .sampling = {.temperature = 3, .top_k = 5, .seed = 1}, .max_tokens = 6, .top_logprobs = 3});
  ASSERT_EQ(g.logprobs.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) {
    const auto logits = model.expected(history);
    double sum = 0;
    for (const double l : logits) sum += std::exp(l);
    EXPECT_NEAR(g.logprobs[i], logits[static_cast<std::size_t>(g.ids[i])] - std::log(sum), 1e-12);
    ASSERT_EQ(g.top[i].size(), 3u);
    EXPECT_EQ(g.top[i][0].logprob, *std::max_element(logits.begin(), logits.end()) - sample::log_sum_exp(logits));
    history.push_back(g.ids[i]);
  }
}

TEST(Engine, CancelFreesPagesAtOnceInAnyState) {
  FakeModel model({.pages = {10}});
  Engine engine(model, {.max_sequences = 3, .token_budget = 6});
  const auto steady = some_tokens(3, 1);
  const RequestId decoding = engine.submit({.prompt = some_tokens(2, 2), .max_tokens = 9});
  const RequestId neighbor = engine.submit({.prompt = steady, .max_tokens = 10});
  Outcomes outcomes;
  collect(outcomes, engine.step());
  const RequestId prefilling = engine.submit({.prompt = some_tokens(14, 3), .max_tokens = 2});
  const RequestId queued = engine.submit({.prompt = some_tokens(9, 4), .max_tokens = 2});
  collect(outcomes, engine.step());
  EXPECT_EQ(engine.requests(), 4u);
  for (const RequestId id : {prefilling, queued, decoding}) {
    const std::uint32_t before = engine.pages(0).available();
    EXPECT_TRUE(engine.cancel(id));
    EXPECT_FALSE(engine.cancel(id));
    EXPECT_EQ(engine.pages(0).available() > before, id != queued);
  }
  EXPECT_EQ(engine.pages(0).held, 1u);
  for (int i = 0; i < 50 && !engine.idle(); ++i) {
    for (const Event& e : engine.step()) {
      Outcome& o = outcomes[e.request];
      if (e.token >= 0) o.ids.push_back(e.token);
      o.finish = e.finish;
    }
  }
  for (const RequestId id : {prefilling, queued, decoding}) EXPECT_EQ(outcomes[id].finish, FinishReason::kCanceled);
  EXPECT_EQ(outcomes[neighbor].ids, model.greedy(steady, 10));
  EXPECT_TRUE(all_pages_free(engine));
  EXPECT_EQ(model.rope_rows_held(), 0);
  EXPECT_FALSE(engine.cancel(neighbor));
}

TEST(Engine, RandomCancellationsHarmNoNeighbor) {
  FakeModel model({.windows = {0, 5}, .pages = {24, 16}});
  Engine engine(model, {.max_sequences = 5, .token_budget = 7});
  std::mt19937 random(5);
  std::map<RequestId, std::vector<TokenId>> expected;
  std::set<RequestId> canceled;
  Outcomes outcomes;
  for (std::uint32_t i = 0; i < 300; ++i) {
    const auto prompt = some_tokens(1 + random() % 30, i);
    const std::uint32_t n = 1 + random() % 12;
    expected[engine.submit({.prompt = prompt, .max_tokens = n})] = model.greedy(prompt, n);
    if (random() % 3 == 0) {
      const auto victim = std::next(expected.begin(), static_cast<std::ptrdiff_t>(random() % expected.size()))->first;
      if (engine.cancel(victim)) canceled.insert(victim);
    }
    for (int k = 0; k < 2; ++k) {
      for (const Event& e : engine.step()) {
        if (e.token >= 0) outcomes[e.request].ids.push_back(e.token);
        outcomes[e.request].finish = e.finish;
      }
    }
  }
  while (!engine.idle()) {
    for (const Event& e : engine.step()) {
      if (e.token >= 0) outcomes[e.request].ids.push_back(e.token);
      outcomes[e.request].finish = e.finish;
    }
  }
  EXPECT_GT(canceled.size(), 20u);
  for (const auto& [id, ids] : expected) {
    const Outcome& o = outcomes[id];
    EXPECT_EQ(o.finish, canceled.contains(id) ? FinishReason::kCanceled : FinishReason::kLength);
    ASSERT_LE(o.ids.size(), ids.size());
    EXPECT_TRUE(std::equal(o.ids.begin(), o.ids.end(), ids.begin()));
    EXPECT_TRUE(canceled.contains(id) || o.ids.size() == ids.size());
  }
  EXPECT_TRUE(all_pages_free(engine, 2));
  EXPECT_EQ(model.rope_rows_held(), 0);
}

TEST(Engine, GenerateStopsWhenInterrupted) {
  FakeModel model;
  Engine engine(model);
  std::atomic<bool> interrupt{false};
  const auto prompt = some_tokens(5, 1);
  int tokens = 0;
  const Generation g = generate(
      engine, {.prompt = prompt, .max_tokens = 100},
      [&](const Event& event) {
        if (event.token >= 0 && ++tokens == 4) interrupt = true;
      },
      &interrupt);
  EXPECT_EQ(g.finish, FinishReason::kCanceled);
  EXPECT_EQ(g.ids, model.greedy(prompt, 4));
  EXPECT_EQ(g.steps.size(), 4u);
  EXPECT_TRUE(all_pages_free(engine));
  EXPECT_TRUE(engine.idle());
}

TEST(Engine, GenerateCleansUpWhenItsCallbackThrows) {
  FakeModel model;
  Engine engine(model);
  EXPECT_THROW(generate(engine, {.prompt = some_tokens(5, 1), .max_tokens = 100},
                        [](const Event&) { throw std::runtime_error("enough"); }),
               std::runtime_error);
  EXPECT_TRUE(engine.idle());
  EXPECT_TRUE(all_pages_free(engine));
  engine.submit({.prompt = some_tokens(5, 1), .max_tokens = 2});
  EXPECT_THROW(generate(engine, {.prompt = some_tokens(5, 1)}), Error);  // not the only one
}

TEST(Engine, RefusesOptionsThatAllowNoWork) {
  FakeModel model;
  EXPECT_THROW(Engine(model, {.max_sequences = 0}), Error);
  EXPECT_THROW(Engine(model, {.token_budget = 0}), Error);
}

TEST(Engine, RequestsUnderWayEndWithTheEngine) {
  FakeModel model;
  {
    Engine engine(model);
    engine.submit({.prompt = some_tokens(5, 1)});
    engine.step();
    engine.submit({.prompt = some_tokens(5, 1)});
  }
  EXPECT_EQ(model.rope_rows_held(), 0);
}

}  // namespace
}  // namespace backplane::engine
