// Rows that are sampled on several threads: the same as on one.
#include "core/engine/draw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "tests/unit/engine/engine_fixture.h"

namespace backplane::engine {
namespace {

constexpr std::uint32_t kVocabulary = 20000;

FakeOptions large_vocabulary() {
  return {.vocab_size = kVocabulary, .max_step_tokens = 256, .max_step_sequences = 64, .pages = {600}};
}

// Of every kind; among them one with many answers, and some with log-probabilities.
Request request(std::uint32_t i) {
  const sample::SamplingParams kinds[] = {{},
                                          {.temperature = 1},
                                          {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05},
                                          {.temperature = 1.5, .typical_p = 0.9},
                                          {.repetition_penalty = 1.3, .presence_penalty = 0.5},
                                          {.temperature = 1, .bad_words = {{5}, {6, 7}}}};
  Request out{.prompt = some_tokens(3 + i % 7, i, kVocabulary), .sampling = kinds[i % 6], .max_tokens = 4 + i % 3};
  out.sampling.seed = i;
  if (i % 4 == 1) out.top_logprobs = i % 3;
  if (i % 5 == 2) out.prompt_logprobs = 2;
  if (i == 9) out.n = 20;
  return out;
}

bool same(const sample::TokenReport& a, const sample::TokenReport& b) {
  return a.logprob == b.logprob && a.top == b.top;
}

bool same(const Event& a, const Event& b) {
  return a.request == b.request && a.answer == b.answer && a.token == b.token && a.logprob == b.logprob &&
         a.top == b.top && a.finish == b.finish && a.error.has_value() == b.error.has_value() &&
         std::equal(a.prompt.begin(), a.prompt.end(), b.prompt.begin(), b.prompt.end(),
                    [](const auto& x, const auto& y) { return same(x, y); });
}

std::vector<Event> run(ThreadPool* pool) {
  FakeModel model(large_vocabulary());
  model.after_step = [](const sched::Step& step, Logits& logits) {  // somebody's row is broken in some steps
    if (step.rows() % 7 == 3)
      logits.values[std::size_t{kVocabulary} * 2 + 9] = std::numeric_limits<double>::quiet_NaN();
  };
  Engine engine(model, {.pool = pool});
  for (std::uint32_t i = 0; i < 30; ++i) engine.submit(request(i));
  std::vector<Event> events;
  while (!engine.idle()) {
    for (Event& event : engine.step()) events.push_back(std::move(event));
  }
  std::uint32_t rows = 0;
  for (const sched::Step& step : model.steps()) rows = std::max(rows, step.rows());
  EXPECT_GE(rows, 2 * RowDrawer::grain(kVocabulary)) << "no step was worth several threads";
  return events;
}

TEST(RowDrawer, ThreadsChangeNothing) {
  ThreadPool one(1);
  const std::vector<Event> expected = run(&one);
  const auto count = [&](auto&& has) { return std::count_if(expected.begin(), expected.end(), has); };
  EXPECT_GT(count([](const Event& e) { return e.error.has_value(); }), 0);
  EXPECT_GT(count([](const Event& e) { return !e.prompt.empty(); }), 2);
  EXPECT_GT(count([](const Event& e) { return e.answer > 10; }), 10);
  for (const unsigned threads : {2u, 3u, 8u, 0u}) {
    SCOPED_TRACE(threads);
    ThreadPool pool(std::max(1u, threads));
    const std::vector<Event> got = run(threads == 0 ? nullptr : &pool);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same(got[i], expected[i])) << "event " << i;
  }
}

TEST(RowDrawer, EachRowHasItsOwnEnd) {
  const std::size_t rows = 3 * RowDrawer::grain(kVocabulary);
  std::vector<double> good(kVocabulary, 0), bad(kVocabulary, 0);
  good[17] = 3;
  bad[4] = std::numeric_limits<double>::infinity();
  std::vector<sample::Sampler> samplers;
  std::vector<Draw> draws;
  for (std::size_t i = 0; i < rows; ++i) samplers.emplace_back(sample::SamplingParams{});
  for (std::size_t i = 0; i < rows; ++i)
    draws.push_back({.logits = i % 3 == 1 ? bad : good, .sampler = &samplers[i], .top = 1});
  draws.back().sampler = nullptr;
  draws.back().token = 5;
  ThreadPool pool(3);
  RowDrawer(&pool).run(draws);
  for (std::size_t i = 0; i < rows; ++i) {
    ASSERT_EQ(draws[i].error.has_value(), i % 3 == 1) << i;
    if (draws[i].error) continue;
    EXPECT_EQ(draws[i].token, i + 1 == rows ? 5 : 17);
    EXPECT_EQ(draws[i].report.top.at(0).id, 17);
    EXPECT_LT(draws[i].report.logprob, 0);
  }
  EXPECT_NE(std::string(draws[1].error->what()).find("infinity"), std::string::npos);
}

// A thread is woken for more than it takes to wake it.
TEST(RowDrawer, FewLogitsStayOnOneThread) {
  EXPECT_EQ(RowDrawer::grain(200000), 1u);
  EXPECT_GT(RowDrawer::grain(4000), 8u);
  EXPECT_GT(RowDrawer::grain(0), 1000u);
}

}  // namespace
}  // namespace backplane::engine
