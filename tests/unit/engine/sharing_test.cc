// Requests that share what has been computed, and requests that have to yield: nobody can tell from what comes out, and
// the records of the steps show that it happened.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "core/engine/session.h"
#include "core/sample/logprobs.h"
#include "tests/support/expect_error.h"
#include "tests/unit/engine/engine_fixture.h"

namespace backplane::engine {
namespace {

using Ids = std::vector<TokenId>;

Ids joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::uint64_t tokens_computed(const Engine& engine) {
  const auto& records = engine.steps().records();
  return std::accumulate(records.begin(), records.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const StepRecord& record) { return sum + record.tokens; });
}

TEST(PrefixCache, WhatWasComputedIsNotComputedAgain) {
  FakeModel model;
  Engine engine(model);
  const Ids system = some_tokens(22, 1);
  const Ids first = joined(system, some_tokens(5, 2)), second = joined(system, some_tokens(6, 3));
  EXPECT_EQ(generate(engine, {.prompt = first, .max_tokens = 4}).ids, model.greedy(first, 4));
  const Generation hit = generate(engine, {.prompt = second, .max_tokens = 4});
  EXPECT_EQ(hit.ids, model.greedy(second, 4));
  EXPECT_EQ(hit.steps.front().cached, 20u);  // five pages of four
  EXPECT_EQ(hit.steps.front().tokens, 8u);
  EXPECT_EQ(engine.stats().prefix.queried, 27u + 28);
  EXPECT_EQ(engine.stats().prefix.found, 20u);
  // The same again: all but the page with its last token, which gives the logits.
  EXPECT_EQ(generate(engine, {.prompt = second, .max_tokens = 4}).steps.front().cached, 24u);
  // A reply is as good as a prompt.
  const Ids longer = joined(joined(first, model.greedy(first, 4)), some_tokens(3, 9));
  EXPECT_EQ(generate(engine, {.prompt = longer, .max_tokens = 4}).steps.front().cached, 28u);
  EXPECT_TRUE(all_pages_free(engine));
}

TEST(PrefixCache, CanBeSwitchedOff) {
  FakeModel model;
  Engine engine(model, {.prefix_cache = false});
  const Ids prompt = some_tokens(22, 1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(generate(engine, {.prompt = prompt, .max_tokens = 4}).steps.front().cached, 0u);
  }
  EXPECT_EQ(engine.pages(0).free, engine.pages(0).total);
  EXPECT_EQ(engine.stats().prefix.queried, 0u);
}

TEST(PrefixCache, AnotherSaltSeesNothing) {
  FakeModel model;
  Engine engine(model);
  const Ids prompt = some_tokens(22, 1);
  const auto cached = [&](const std::string& salt) {
    const Generation out = generate(engine, {.prompt = prompt, .max_tokens = 4, .cache_salt = salt});
    EXPECT_EQ(out.ids, model.greedy(prompt, 4));
    return out.steps.front().cached;
  };
  EXPECT_EQ(cached("tenant a"), 0u);
  EXPECT_EQ(cached("tenant b"), 0u);
  EXPECT_EQ(cached(""), 0u);
  EXPECT_EQ(cached("tenant a"), 20u);
  EXPECT_EQ(cached("tenant b"), 20u);
}

TEST(PrefixCache, OtherRopeFactorsAreAnotherText) {
  FakeModel model({.long_from = 40});
  Engine engine(model);
  const Ids prompt = some_tokens(22, 1);
  const auto cached = [&](std::uint32_t n) {
    const Generation out = generate(engine, {.prompt = prompt, .max_tokens = n});
    EXPECT_EQ(out.ids, model.greedy(prompt, n, prompt.size() + n >= 40 ? prompt.size() + n : 0));
    return out.steps.front().cached;
  };
  EXPECT_EQ(cached(5), 0u);
  EXPECT_EQ(cached(20), 0u);
  EXPECT_EQ(cached(21), 0u);
  EXPECT_EQ(cached(20), 20u);
  EXPECT_EQ(cached(6), 20u);
}

TEST(PrefixCache, HelpsThoseThatRunAtTheSameTime) {
  FakeModel model;
  Engine engine(model, {.token_budget = 16});
  const Ids prompt = some_tokens(22, 1);
  std::vector<RequestId> ids{engine.submit({.prompt = prompt, .max_tokens = 20})};
  Outcomes outcomes;
  collect(outcomes, engine.step());
  collect(outcomes, engine.step());
  for (int i = 0; i < 3; ++i) ids.push_back(engine.submit({.prompt = prompt, .max_tokens = 20}));
  const std::uint64_t before = engine.pages(0).held;
  collect(outcomes, engine.step());
  EXPECT_EQ(engine.stats().prefix.found, 60u);
  EXPECT_LE(engine.pages(0).held, before + 4) << "they share the pages";
  for (int i = 0; i < 100 && !engine.idle(); ++i) {
    for (const Event& event : engine.step()) outcomes[event.request].ids.push_back(event.token);
  }
  for (const RequestId id : ids) EXPECT_EQ(outcomes[id].ids, model.greedy(prompt, 20));
  EXPECT_TRUE(all_pages_free(engine));
}

TEST(PrefixCache, WorksBehindWindows) {
  FakeModel model({.windows = {0, 6, 1}, .pages = {60, 30, 20}});
  Engine engine(model, {.token_budget = 8});
  Ids prompt = some_tokens(40, 1);
  EXPECT_EQ(generate(engine, {.prompt = prompt, .max_tokens = 9}).ids, model.greedy(prompt, 9));
  const Generation hit = generate(engine, {.prompt = prompt, .max_tokens = 9});
  EXPECT_EQ(hit.ids, model.greedy(prompt, 9));
  EXPECT_EQ(hit.steps.front().cached, 36u);
  prompt.resize(23);
  const Generation shorter = generate(engine, {.prompt = prompt, .max_tokens = 9});
  EXPECT_EQ(shorter.ids, model.greedy(prompt, 9));
  EXPECT_EQ(shorter.steps.front().cached, 20u);
  EXPECT_TRUE(all_pages_free(engine, 3));
}

TEST(PrefixCache, IsEmptyWhenTheModelWasReplaced) {
  FakeModel model;
  Engine engine(model);
  const Ids prompt = some_tokens(22, 1);
  generate(engine, {.prompt = prompt, .max_tokens = 4});
  bool lost = false;
  model.before_step = [&](const sched::Step&) {
    if (std::exchange(lost, true)) return;
    model.lose_pages();
    throw ModelReplaced("gone");
  };
  const Generation out = generate(engine, {.prompt = prompt, .max_tokens = 4});
  EXPECT_EQ(out.ids, model.greedy(prompt, 4));
  EXPECT_EQ(out.steps.front().cached, 0u);
  EXPECT_EQ(engine.fault(), "");
}

// A canary for each tenant, under load, with every prefix shared by others that go on differently.
TEST(PrefixCache, ServesNobodyAnothersText) {
  FakeModel model({.windows = {0, 7}, .pages = {44, 44}});
  Engine engine(model, {.max_sequences = 6, .token_budget = 12, .headroom = 4});
  std::mt19937 random(3);
  std::map<RequestId, Ids> expected;
  Outcomes outcomes;
  for (std::uint32_t i = 0; i < 300; ++i) {
    Ids prompt = some_tokens(1 + random() % 25, i % 3);
    if (random() % 2) prompt = joined(prompt, some_tokens(1 + random() % 5, i));
    const std::uint32_t n = 1 + random() % 12;
    expected[engine.submit({.prompt = prompt, .max_tokens = n, .cache_salt = std::to_string(i % 2)})] =
        model.greedy(prompt, n);
    for (int k = 0; k < 2; ++k) {
      for (const Event& event : engine.step()) outcomes[event.request].ids.push_back(event.token);
    }
  }
  while (!engine.idle()) {
    for (const Event& event : engine.step()) outcomes[event.request].ids.push_back(event.token);
  }
  for (const auto& [id, ids] : expected) ASSERT_EQ(outcomes[id].ids, ids);
  EXPECT_GT(engine.stats().prefix.found, 1000u);
  EXPECT_GT(engine.stats().prefix.evicted, 100u);
  EXPECT_TRUE(all_pages_free(engine, 2));
}

struct Preempted {
  explicit Preempted(bool cache, FakeOptions options = {.pages = {12}})
      : model(std::move(options)),
        engine(model, {.max_sequences = 4, .token_budget = 32, .prefix_cache = cache, .headroom = 0}) {
    for (std::uint32_t i = 0; i < 3; ++i) {
      const Ids prompt = some_tokens(10, i);
      expected[engine.submit({.prompt = prompt, .max_tokens = 20})] = model.greedy(prompt, 20);
    }
  }
  FakeModel model;
  Engine engine;
  std::map<RequestId, Ids> expected;
};

TEST(Preemption, ChangesNoToken) {
  std::uint64_t computed[2];
  for (const bool cache : {false, true}) {
    Preempted p(cache);
    Outcomes outcomes = run_to_end(p.engine);
    for (const auto& [id, ids] : p.expected) EXPECT_EQ(outcomes[id].ids, ids);
    EXPECT_GT(p.engine.stats().preempted, 0u);
    EXPECT_TRUE(all_pages_free(p.engine));
    EXPECT_EQ(p.model.rope_rows_held(), 0);
    computed[cache] = tokens_computed(p.engine);
  }
  const std::uint64_t once = 3 * 29;
  EXPECT_GT(computed[0], once + 20) << "it was computed again";
  EXPECT_GT(computed[1], once);
  EXPECT_LT(computed[1], computed[0]) << "its full pages were still there";
}

TEST(Preemption, TakesTheNewestAndGivesBackEverything) {
  Preempted p(false);
  while (p.engine.stats().preempted == 0) p.engine.step();
  EXPECT_EQ(p.engine.stats().running, 2u);
  EXPECT_EQ(p.engine.stats().waiting, 1u);
  EXPECT_EQ(p.engine.fault(), "");
  const std::uint64_t held = p.engine.pages(0).held;
  p.engine.cancel(std::prev(p.expected.end())->first);
  EXPECT_EQ(p.engine.pages(0).held, held) << "it was the last one, and had nothing any more";
}

TEST(Preemption, CanBeRuledOut) {
  FakeModel model({.pages = {12}});
  Engine engine(model, {.max_sequences = 4, .token_budget = 32, .headroom = EngineOptions::kNoPreemption});
  std::map<RequestId, Ids> expected;
  for (std::uint32_t i = 0; i < 8; ++i) {
    const Ids prompt = some_tokens(10, i);
    expected[engine.submit({.prompt = prompt, .max_tokens = 20})] = model.greedy(prompt, 20);
  }
  Outcomes outcomes = run_to_end(engine);
  for (const auto& [id, ids] : expected) EXPECT_EQ(outcomes[id].ids, ids);
  EXPECT_EQ(engine.stats().preempted, 0u);
  EXPECT_EQ(tokens_computed(engine), 8u * 29);
}

TEST(Preemption, AnyCompanyInTinyPools) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    FakeModel model({.page_size = 1 + static_cast<std::uint32_t>(random() % 4),
                     .windows = {0, 5},
                     .pages = {14, 18},
                     .long_from = seed % 3 ? ~0ull : 9,
                     .rope_rows = 3});
    EngineOptions options{.max_sequences = 3, .token_budget = 4 + static_cast<std::uint32_t>(random() % 9)};
    options.prefix_cache = seed % 4 != 0;
    options.headroom = random() % 6;
    Engine engine(model, options);
    const auto longest = static_cast<std::uint32_t>(engine.limits().kv_longest);
    std::map<RequestId, Ids> expected;
    std::set<RequestId> canceled;
    Outcomes outcomes;
    const auto step = [&] {
      for (const Event& event : engine.step()) {
        if (event.token >= 0) outcomes[event.request].ids.push_back(event.token);
        outcomes[event.request].finish = event.finish;
      }
      ASSERT_EQ(engine.fault(), "");
    };
    for (std::uint32_t i = 0; i < 30; ++i) {
      const Ids prompt = some_tokens(1 + random() % longest, random() % 4);
      const auto n = static_cast<std::uint32_t>(1 + random() % (longest - prompt.size() + 1));
      const RequestId id =
          engine.submit({.prompt = prompt, .max_tokens = n, .priority = static_cast<std::int32_t>(random() % 3)});
      const std::uint64_t planned = std::min<std::uint64_t>(prompt.size() + n, 200);
      expected[id] = model.greedy(prompt, n, seed % 3 || planned < 9 ? 0 : planned);
      if (random() % 5 == 0 && engine.cancel(id)) canceled.insert(id);
      if (random() % 2) step();
    }
    for (int i = 0; i < 5000 && !engine.idle(); ++i) step();
    for (const auto& [id, ids] : expected) {
      if (canceled.contains(id)) continue;
      ASSERT_EQ(outcomes[id].ids, ids) << seed;
    }
    EXPECT_TRUE(all_pages_free(engine, 2));
    EXPECT_EQ(model.rope_rows_held(), 0);
  }
}

TEST(Priority, ServesTheLowerValueFirst) {
  FakeModel model;
  Engine engine(model, {.max_sequences = 1, .token_budget = 32});
  std::vector<RequestId> order;
  const auto submit = [&](std::int32_t priority, std::uint32_t seed) {
    return engine.submit({.prompt = some_tokens(5, seed), .max_tokens = 3, .priority = priority});
  };
  const RequestId running = submit(0, 1);
  engine.step();
  const RequestId last = submit(5, 2), second = submit(0, 3), urgent = submit(-1, 4);
  while (!engine.idle()) {
    for (const Event& event : engine.step()) {
      if (event.finish != FinishReason::kNone) order.push_back(event.request);
    }
  }
  EXPECT_EQ(order, (std::vector<RequestId>{urgent, running, second, last}));
  EXPECT_EQ(engine.stats().preempted, 1u) << "the urgent one takes the only seat";
}

std::vector<Ids> answers_of(Engine& engine, Request request, std::vector<FinishReason>* ends = nullptr) {
  std::vector<Ids> out(request.n);
  const RequestId id = engine.submit(std::move(request));
  for (int i = 0; i < 1000 && !engine.idle(); ++i) {
    for (const Event& event : engine.step()) {
      EXPECT_EQ(event.request, id);
      if (event.token >= 0) out.at(event.answer).push_back(event.token);
      if (ends && event.finish != FinishReason::kNone) ends->push_back(event.finish);
    }
  }
  return out;
}

Request drawn(const Ids& prompt, std::uint32_t n, std::uint32_t tokens = 12) {
  return {.prompt = prompt, .sampling = {.temperature = 1.5, .seed = 9}, .max_tokens = tokens, .n = n};
}

TEST(Answers, AreThoseOfRequestsOfTheirOwn) {
  for (const std::size_t length : {9u, 12u, 1u}) {
    const Ids prompt = some_tokens(length, 1);
    std::vector<Ids> alone;
    for (std::uint32_t i = 0; i < 5; ++i) {
      FakeModel model;
      Engine engine(model);
      Request request = drawn(prompt, 1);
      request.sampling.choice = i;
      alone.push_back(generate(engine, request).ids);
    }
    EXPECT_EQ(std::set(alone.begin(), alone.end()).size(), 5u);
    FakeModel model({.windows = {0, 5}, .pages = {100, 100}});
    FakeModel full;
    Engine engine(full);
    std::vector<FinishReason> ends;
    EXPECT_EQ(answers_of(engine, drawn(prompt, 5), &ends), alone);
    EXPECT_EQ(ends, std::vector<FinishReason>(5, FinishReason::kLength));
    EXPECT_EQ(tokens_computed(engine), length + 5u * 11) << "the prompt once";
    EXPECT_EQ(engine.stats().pages_copied, length % 4 == 0 ? 0u : 5u);
    EXPECT_TRUE(all_pages_free(engine));
    EXPECT_EQ(full.rope_rows_held(), 0);
  }
}

TEST(Answers, InAnyPoolAndBehindWindows) {
  for (const std::uint32_t pages : {7u, 9u, 14u, 40u}) {
    for (const bool cache : {false, true}) {
      const FakeOptions options{.windows = {0, 6}, .pages = {pages, pages + 4}};
      const Ids prompt = some_tokens(10, 1);
      std::vector<Ids> alone;
      for (std::uint32_t i = 0; i < 6; ++i) {
        FakeModel model(options);
        Engine engine(model, {.token_budget = 8});
        Request request = drawn(prompt, 1);
        request.sampling.choice = i;
        alone.push_back(generate(engine, request).ids);
      }
      FakeModel model(options);
      Engine engine(model, {.max_sequences = 4, .token_budget = 8, .prefix_cache = cache, .headroom = 2});
      EXPECT_EQ(answers_of(engine, drawn(prompt, 6)), alone) << pages;
      EXPECT_TRUE(all_pages_free(engine, 2));
    }
  }
}

TEST(Answers, EachHasItsEnd) {
  FakeModel model;
  Engine engine(model, {.max_sequences = 2, .token_budget = 6});
  const Ids prompt = some_tokens(9, 1);
  std::map<std::uint32_t, FinishReason> ends;
  const auto step = [&] {
    for (const Event& event : engine.step()) {
      if (event.finish == FinishReason::kNone) continue;
      EXPECT_TRUE(ends.emplace(event.answer, event.finish).second);
    }
  };
  for (const int steps : {0, 1, 2, 5}) {  // canceled while it waits, in its prompt, after the first token, later
    ends.clear();
    const RequestId id = engine.submit(drawn(prompt, 3, 20));
    for (int i = 0; i < steps; ++i) step();
    EXPECT_EQ(engine.requests(), 1u);
    EXPECT_TRUE(engine.cancel(id));
    EXPECT_TRUE(all_pages_free(engine));
    step();
    EXPECT_EQ(ends, (std::map<std::uint32_t, FinishReason>{
                        {0, FinishReason::kCanceled}, {1, FinishReason::kCanceled}, {2, FinishReason::kCanceled}}));
    EXPECT_FALSE(engine.cancel(id));
  }
  ends.clear();
  model.before_step = [](const sched::Step&) { throw Error(ErrorCode::kDevice, "no"); };
  engine.submit(drawn(prompt, 3, 20));
  step();
  EXPECT_EQ(ends, (std::map<std::uint32_t, FinishReason>{
                      {0, FinishReason::kError}, {1, FinishReason::kError}, {2, FinishReason::kError}}));
  EXPECT_TRUE(engine.idle());
}

TEST(Answers, ACopyThatFailsEndsWhoNeededIt) {
  FakeModel model;
  Engine engine(model);
  const Ids prompt = some_tokens(9, 1);
  Ids alone;
  {
    FakeModel other;
    Engine one(other);
    alone = generate(one, drawn(prompt, 1)).ids;
  }
  int failures = 2;  // of the step with all of them, and of the first one's alone
  model.before_copy = [&] {
    if (failures-- > 0) throw Error(ErrorCode::kDevice, "no copy");
  };
  std::vector<FinishReason> ends;
  const std::vector<Ids> answers = answers_of(engine, drawn(prompt, 3), &ends);
  EXPECT_EQ(answers[0].size(), 1u);
  EXPECT_EQ(std::count(ends.begin(), ends.end(), FinishReason::kError), 1);
  EXPECT_EQ(answers[1].size(), 12u);
  EXPECT_EQ(answers[2].size(), 12u);
  EXPECT_NE(answers[1], answers[2]);
  EXPECT_TRUE(all_pages_free(engine));
}

TEST(Answers, SurviveTheLossOfTheModel) {
  const Ids prompt = some_tokens(9, 1);
  FakeModel whole;
  Engine undisturbed(whole, {.max_sequences = 3});
  const std::vector<Ids> want = answers_of(undisturbed, drawn(prompt, 4));
  for (std::size_t n = 0; n < whole.steps().size(); ++n) {
    FakeModel model;
    std::size_t step = 0;
    model.before_step = [&](const sched::Step&) {
      if (step++ != n) return;
      model.lose_pages();
      throw ModelReplaced("gone");
    };
    Engine engine(model, {.max_sequences = 3});
    EXPECT_EQ(answers_of(engine, drawn(prompt, 4)), want) << n;
    EXPECT_TRUE(all_pages_free(engine));
    EXPECT_EQ(model.rope_rows_held(), 0);
  }
}

TEST(Answers, AreRefusedWhereOneIsTaken) {
  FakeModel model;
  Engine engine(model);
  EXPECT_ERROR(engine.submit(drawn(some_tokens(3, 1), 0)), ErrorCode::kUsage, "n can't be 0");
  EXPECT_ERROR(engine.submit(drawn(some_tokens(3, 1), kMostAnswers + 1)), ErrorCode::kUsage, "ask for 1 to");
  EXPECT_ERROR(generate(engine, drawn(some_tokens(3, 1), 2)), ErrorCode::kUsage, "several answers");
  Session session(engine);
  EXPECT_ERROR(session.submit(drawn(some_tokens(3, 1), 2)), ErrorCode::kUsage, "one answer");
  EXPECT_EQ(session.generate(drawn(some_tokens(3, 1), 1)).ids.size(), 12u);
  EXPECT_TRUE(engine.idle());
}

TEST(PromptLogprobs, AreOfEveryTokenButTheFirst) {
  const Ids prompt = some_tokens(21, 1);
  for (const std::uint32_t budget : {64u, 5u, 1u}) {
    FakeModel model;
    Engine engine(model, {.max_sequences = 4, .token_budget = budget});
    generate(engine, {.prompt = prompt, .max_tokens = 2});  // what the cache has of it is of no use
    std::vector<Event> events;
    engine.submit({.prompt = prompt, .max_tokens = 2, .prompt_logprobs = 3});
    while (!engine.idle()) {
      for (Event& event : engine.step()) events.push_back(std::move(event));
    }
    ASSERT_EQ(events.size(), 2u);
    EXPECT_TRUE(events[1].prompt.empty());
    ASSERT_EQ(events[0].prompt.size(), 20u);
    for (std::size_t i = 0; i < 20; ++i) {
      const auto logits = model.expected({prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(i) + 1});
      EXPECT_EQ(events[0].prompt[i].logprob, sample::token_logprob(logits, prompt[i + 1]));
      ASSERT_EQ(events[0].prompt[i].top.size(), 3u);
      EXPECT_EQ(events[0].prompt[i].top[0].id, sample::argmax(logits));
    }
    EXPECT_EQ(events[0].token, model.greedy(prompt, 1)[0]);
  }
}

TEST(PromptLogprobs, ComeOnceEvenWhenItIsComputedAgain) {
  const Ids prompt = some_tokens(21, 1);
  for (std::size_t lost = 0; lost < 6; ++lost) {
    FakeModel model;
    std::size_t step = 0;
    model.before_step = [&](const sched::Step&) {
      if (step++ != lost) return;
      model.lose_pages();
      throw ModelReplaced("gone");
    };
    Engine engine(model, {.max_sequences = 4, .token_budget = 6});
    engine.submit({.prompt = prompt, .max_tokens = 1, .prompt_logprobs = 0});
    std::size_t scores = 0;
    while (!engine.idle()) {
      for (const Event& event : engine.step()) scores += event.prompt.size();
    }
    EXPECT_EQ(scores, 20u);
    std::size_t rows = 0;
    for (const StepRecord& record : engine.steps().records()) rows += record.rows;
    EXPECT_EQ(rows, 21u) << "no row is computed twice";
  }
}

}  // namespace
}  // namespace backplane::engine
