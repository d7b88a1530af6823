// What goes wrong on the device ends the requests it concerns, and no others.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "core/engine/engine.h"
#include "core/engine/session.h"
#include "tests/unit/engine/engine_fixture.h"

namespace backplane::engine {
namespace {

constexpr TokenId kPoison = 22;

std::vector<TokenId> clean_tokens(std::size_t n, std::uint32_t seed) { return some_tokens(n, seed, 20); }

bool contains_poison(const sched::Step& step) {
  return std::find(step.token.begin(), step.token.end(), kPoison) != step.token.end();
}

// Three requests, of which the second has the poisoned token in its prompt. Generated tokens must not be it.
struct Three {
  explicit Three(FakeModel& model) : engine(model, {.token_budget = 16}) {
    for (std::uint32_t i = 0; i < 3; ++i) {
      auto prompt = clean_tokens(6, i);
      if (i == 1) prompt[4] = kPoison;
      prompts.push_back(prompt);
      ids.push_back(engine.submit({.prompt = prompt, .max_tokens = 5}));
    }
  }
  Engine engine;
  std::vector<std::vector<TokenId>> prompts;
  std::vector<RequestId> ids;
};

void expect_only_the_second_failed(FakeModel& model, Three& three, ErrorCode code, const std::string& text) {
  Outcomes outcomes = run_to_end(three.engine);
  for (const std::size_t i : {0u, 2u}) {
    const auto expected = model.greedy(three.prompts[i], 5);
    ASSERT_EQ(std::count(expected.begin(), expected.end(), kPoison), 0) << "choose other seeds";
    EXPECT_EQ(outcomes[three.ids[i]].ids, expected);
    EXPECT_EQ(outcomes[three.ids[i]].finish, FinishReason::kLength);
  }
  const Outcome& bad = outcomes[three.ids[1]];
  EXPECT_EQ(bad.finish, FinishReason::kError);
  EXPECT_TRUE(bad.ids.empty());
  ASSERT_TRUE(bad.error);
  EXPECT_EQ(bad.error->code(), code);
  EXPECT_NE(std::string(bad.error->what()).find(text), std::string::npos) << bad.error->what();
  EXPECT_TRUE(all_pages_free(three.engine));
  EXPECT_EQ(model.rope_rows_held(), 0);
}

// https://github.com/vllm-project/vllm/issues/13035: NaN became a text of "!!!!".
TEST(Failure, BrokenLogitsEndTheirRequest) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const std::pair<double, const char*> kinds[] = {
      {kNan, "NaN"}, {kInfinity, "gave infinity"}, {-kInfinity, "no possible token"}};
  for (const auto& [broken, text] : kinds) {
    FakeModel model;
    model.after_step = [broken = broken](const sched::Step& step, Logits& logits) {
      for (std::size_t r = 0; r < step.out_row.size(); ++r) {
        const std::size_t t = static_cast<std::size_t>(step.out_row[r]);
        if (t == 0 || step.token[t - 1] != kPoison) continue;
        const auto row = logits.values.begin() + static_cast<std::ptrdiff_t>(r * logits.vocab_size);
        // One is enough, but for minus infinity: then it's all of them.
        std::fill(row + (broken < 0 ? 0 : 7), row + (broken < 0 ? logits.vocab_size : 8), broken);
      }
    };
    Three three(model);
    expect_only_the_second_failed(model, three, ErrorCode::kDevice, text);
    EXPECT_EQ(model.steps().front().sequences(), 3u);
  }
}

// NaN may come from K and V: what a request with broken logits has computed is given to no one else.
TEST(Failure, NothingOfABrokenRequestIsKept) {
  FakeModel model;
  bool broken = true;
  model.after_step = [&](const sched::Step&, Logits& logits) {
    if (broken) std::fill(logits.values.begin(), logits.values.end(), std::numeric_limits<double>::quiet_NaN());
  };
  Engine engine(model);
  Session session(engine);
  const auto prompt = some_tokens(40, 1);
  EXPECT_EQ(session.generate({.prompt = prompt, .max_tokens = 5}).finish, FinishReason::kError);
  engine.submit({.prompt = prompt, .max_tokens = 5});
  EXPECT_EQ(run_to_end(engine).begin()->second.finish, FinishReason::kError);
  broken = false;
  EXPECT_EQ(session.cached(), 0u);
  const RequestId id = engine.submit({.prompt = prompt, .max_tokens = 5});
  EXPECT_EQ(run_to_end(engine)[id].ids, model.greedy(prompt, 5));
  EXPECT_EQ(engine.stats().prefix.found, 0u);
  EXPECT_EQ(session.generate({.prompt = prompt, .max_tokens = 5}).ids, model.greedy(prompt, 5));
  EXPECT_GT(engine.stats().prefix.found, 0u) << "what is sound is kept";
}

TEST(Failure, AStepThatTheDeviceRefusesIsRunAgainOneByOne) {
  FakeModel model;
  model.before_step = [](const sched::Step& step) {
    if (contains_poison(step)) throw Error(ErrorCode::kDevice, "lost my marbles");
  };
  Three three(model);
  expect_only_the_second_failed(model, three, ErrorCode::kDevice, "marbles");
  // The record has the steps that ran, not those that failed.
  EXPECT_EQ(model.steps().size(), three.engine.steps().records().size() + 2);
}

TEST(Failure, PagesOfAFailedStepAreUndefinedAndWrittenAgain) {
  FakeModel model;
  int failures = 0;
  model.after_step = [&](const sched::Step& step, Logits&) {
    // The step has written its pages when it fails.
    if (step.sequences() > 1 && failures < 3) {
      ++failures;
      throw Error(ErrorCode::kDevice, "too late");
    }
  };
  Engine engine(model, {.token_budget = 9});
  std::map<RequestId, std::vector<TokenId>> expected;
  for (std::uint32_t i = 0; i < 4; ++i) {
    const auto prompt = some_tokens(7, i);
    expected[engine.submit({.prompt = prompt, .max_tokens = 6})] = model.greedy(prompt, 6);
  }
  Outcomes outcomes = run_to_end(engine);
  EXPECT_EQ(failures, 3);
  for (const auto& [id, ids] : expected) EXPECT_EQ(outcomes[id].ids, ids);
}

TEST(Failure, OutOfMemoryForOneIsNotTheEnd) {
  FakeModel model;
  model.before_step = [](const sched::Step& step) {
    if (contains_poison(step)) throw std::bad_alloc();
  };
  Three three(model);
  expect_only_the_second_failed(model, three, ErrorCode::kCapacity, "out of memory");
}

TEST(Failure, ADeviceThatIsGoneEndsAllRequestsAndNothingHangs) {
  FakeModel model;
  model.before_step = [](const sched::Step&) { throw Error(ErrorCode::kDevice, "device lost"); };
  Three three(model);
  const Outcomes outcomes = run_to_end(three.engine);
  EXPECT_EQ(outcomes.size(), 3u);
  for (const auto& [id, outcome] : outcomes) EXPECT_EQ(outcome.finish, FinishReason::kError);
  EXPECT_TRUE(three.engine.idle());
  EXPECT_TRUE(all_pages_free(three.engine));
  EXPECT_TRUE(three.engine.steps().records().empty());
}

TEST(Failure, LogitsOfTheWrongSizeAreNotRead) {
  FakeModel model;
  model.after_step = [](const sched::Step&, Logits& logits) { logits.values.push_back(0); };
  Three three(model);
  for (const auto& [id, outcome] : run_to_end(three.engine)) {
    EXPECT_EQ(outcome.finish, FinishReason::kError);
    EXPECT_EQ(outcome.error->code(), ErrorCode::kInternal);
  }
}

}  // namespace
}  // namespace backplane::engine
