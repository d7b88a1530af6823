// A model that loses its device and goes on elsewhere: whenever that happens, nobody can tell from what comes out.
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>

#include "core/engine/scorer.h"
#include "core/engine/session.h"
#include "tests/unit/engine/engine_fixture.h"

namespace backplane::engine {
namespace {

// Loses its pages instead of running the steps that `lost` names, counted from 0 over all it was asked for.
class LossyModel : public FakeModel {
 public:
  LossyModel(FakeOptions options, std::function<bool(std::size_t)> lost) : FakeModel(std::move(options)) {
    before_step = [this, lost = std::move(lost)](const sched::Step&) {
      if (!lost(steps().size() - 1)) return;
      ++losses;
      lose_pages();
      throw ModelReplaced("device lost");
    };
  }
  std::size_t losses = 0;
};

std::shared_ptr<const text::Tokenizer> letters() {
  static const std::string kLetters = "abcdefghijklmnopqrstuvw";
  text::TokenizerSpec spec;
  spec.where = "test";
  for (std::size_t i = 0; i < kLetters.size(); ++i) spec.pieces.emplace_back(kLetters.data() + i, 1);
  spec.kinds.assign(kLetters.size(), text::PieceKind::kNormal);
  spec.alphabet = text::PieceAlphabet::kMetaspace;
  spec.model = text::TokenizerSpec::Model::kScores;
  spec.scores.assign(kLetters.size(), 0.0f);
  return std::make_shared<const text::Tokenizer>(std::move(spec));
}

// All there is to an event, as text: to compare events one by one.
std::string describe(const Event& event) {
  std::string out =
      std::to_string(event.token) + " '" + event.text + "' " + std::string(finish_reason_name(event.finish));
  if (event.logprob) out += " " + std::to_string(*event.logprob);
  for (const auto& top : event.top) out += " " + std::to_string(top.id) + ":" + std::to_string(top.logprob);
  if (event.error) out += std::string(" ") + event.error->what();
  return out;
}

using Told = std::map<RequestId, std::vector<std::string>>;  // the events of each request

struct Case {
  const char* name;
  FakeOptions model;
  EngineOptions engine;
  std::uint32_t requests;
};
void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

// The first stops at a string; others are drawn with a seed, or have log-probabilities. They arrive over time.
Request request(std::uint32_t i, const std::string& stop) {
  Request out{.prompt = some_tokens(3 + 7 * i % 17, i), .max_tokens = i == 0 ? 14 : 6 + i};
  if (i == 0) {
    if (!stop.empty()) out.stop = {"qqq", stop};
  } else {
    out.sampling = {.temperature = 0.9f, .top_k = 9, .seed = 40 + i};
  }
  if (i % 4 == 2) out.top_logprobs = 2;
  return out;
}

Told run(Engine& engine, std::uint32_t requests, const std::string& stop) {
  Told out;
  std::uint32_t sent = 0;
  for (int i = 0; i < 5000 && (sent < requests || !engine.idle()); ++i) {
    if (sent < requests && (sent == 0 || out.size() >= sent)) engine.submit(request(sent++, stop));
    for (const Event& event : engine.step()) out[event.request].push_back(describe(event));
  }
  return out;
}

class Failover : public testing::TestWithParam<Case> {
 protected:
  EngineOptions engine_options() const {
    EngineOptions options = GetParam().engine;
    options.tokenizer = letters();
    return options;
  }

  void SetUp() override {
    {
      FakeModel model(GetParam().model);
      Engine engine(model, engine_options());
      stop_ = generate(engine, request(0, {})).text.substr(8, 2);
    }
    FakeModel model(GetParam().model);
    Engine engine(model, engine_options());
    want_ = run(engine, GetParam().requests, stop_);
    ASSERT_EQ(want_.size(), GetParam().requests);
    EXPECT_NE(want_.begin()->second.back().find("stop"), std::string::npos) << want_.begin()->second.back();
  }

  // Returns how many steps were lost.
  std::size_t expect_same_events(const std::function<bool(std::size_t)>& lost) {
    const Case& c = GetParam();
    LossyModel model(c.model, lost);
    {
      Engine engine(model, engine_options());
      EXPECT_EQ(run(engine, c.requests, stop_), want_);
      EXPECT_TRUE(all_pages_free(engine, static_cast<std::uint32_t>(c.model.windows.size())));
      EXPECT_EQ(engine.steps().steps_run() + model.losses, model.steps().size());
    }
    EXPECT_EQ(model.rope_rows_held(), 0);
    return model.losses;
  }

  std::string stop_;
  Told want_;
};

TEST_P(Failover, LosingAnyStepChangesNoEvent) {
  std::size_t n = 0;
  for (bool reached = true; reached; ++n) {
    SCOPED_TRACE(n);
    reached = expect_same_events([n](std::size_t step) { return step == n; }) == 1;
    if (HasFailure()) return;
  }
  EXPECT_GT(n, 9u);
  // Again and again, with no time to catch up.
  EXPECT_EQ(expect_same_events([](std::size_t step) { return step == 3 || step == 4 || step == 6 || step == 9; }), 4u);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Failover,
    testing::Values(Case{"Alone", {}, {.token_budget = 64}, 1}, Case{"InSmallSteps", {}, {.token_budget = 4}, 1},
                    Case{"Batched", {}, {.token_budget = 64}, 6},
                    Case{"BatchedInSmallSteps", {}, {.max_sequences = 4, .token_budget = 9}, 6},
                    Case{"Windows", {.windows = {0, 5}, .pages = {100, 40}}, {.token_budget = 8}, 5},
                    Case{
                        "RopeByLength", {.long_from = 12, .rope_rows = 3}, {.max_sequences = 3, .token_budget = 16}, 6},
                    Case{"FewPages", {.pages = {14}}, {.token_budget = 16}, 6}),
    [](const auto& each) { return each.param.name; });

TEST(FailoverOfOne, ComputesItsTokensAgainInOneStep) {
  LossyModel model({}, [](std::size_t step) { return step == 4; });
  Engine engine(model, {});
  const auto prompt = some_tokens(9, 1);
  const Generation out = generate(engine, {.prompt = prompt, .max_tokens = 8});
  EXPECT_EQ(out.ids, model.greedy(prompt, 8));
  ASSERT_EQ(out.steps.size(), 8u);
  EXPECT_EQ(out.steps[3].cached, 11u);
  EXPECT_EQ(out.steps[4].cached, 0u);  // prompt and the four tokens there were
  EXPECT_EQ(out.steps[4].tokens, 13u);
  EXPECT_EQ(out.steps[5].cached, 13u);
}

TEST(FailoverOfOne, WhenPartsOfARefusedStepHaveRunAlone) {
  const auto prompts = std::vector{some_tokens(6, 1), some_tokens(7, 2), some_tokens(8, 3)};
  for (std::size_t n = 0; n < 12; ++n) {
    SCOPED_TRACE(n);
    LossyModel model({}, [n](std::size_t step) { return step == n; });
    const auto lose = model.before_step;
    model.before_step = [&](const sched::Step& step) {
      lose(step);
      if (step.sequences() > 1) throw Error(ErrorCode::kDevice, "too much");
    };
    Engine engine(model, {});
    std::map<RequestId, std::vector<TokenId>> want;
    for (const auto& prompt : prompts) {
      want[engine.submit({.prompt = prompt, .max_tokens = 4})] = model.greedy(prompt, 4);
    }
    Outcomes outcomes = run_to_end(engine);
    EXPECT_EQ(model.losses, 1u);
    for (const auto& [id, ids] : want) EXPECT_EQ(outcomes[id].ids, ids);
  }
}

TEST(FailoverOfSessions, ConversationsGoOn) {
  for (std::size_t n = 0; n < 27; ++n) {  // as many steps as there are undisturbed
    SCOPED_TRACE(n);
    LossyModel model({}, [n](std::size_t step) { return step == n; });
    {
      Engine engine(model, {.token_budget = 16});
      Session a(engine), b(engine);
      auto first = some_tokens(12, 1), second = some_tokens(5, 2);
      for (std::uint32_t turn = 0; turn < 3; ++turn) {
        for (auto* talk : {&first, &second}) {
          Session& session = talk == &first ? a : b;
          const std::size_t before = model.losses;
          const Generation reply = session.generate({.prompt = *talk, .max_tokens = 4});
          EXPECT_EQ(reply.ids, model.greedy(*talk, 4));
          EXPECT_EQ(session.cached(), talk->size() + 3);
          if (model.losses > before) {
            EXPECT_EQ((talk == &first ? b : a).cached(), 0u) << "what an idle one had is gone";
          }
          talk->insert(talk->end(), reply.ids.begin(), reply.ids.end());
          const auto more = some_tokens(6, 10 + turn);
          talk->insert(talk->end(), more.begin(), more.end());
        }
      }
      // Both at once.
      const RequestId x = a.submit({.prompt = first, .max_tokens = 3}),
                      y = b.submit({.prompt = second, .max_tokens = 3});
      Outcomes outcomes = run_to_end(engine);
      EXPECT_EQ(outcomes[x].ids, model.greedy(first, 3));
      EXPECT_EQ(outcomes[y].ids, model.greedy(second, 3));
    }
    EXPECT_EQ(model.losses, 1u);
    EXPECT_EQ(model.rope_rows_held(), 0);
  }
}

// Rows by line and position, each given once.
std::map<std::pair<std::size_t, std::uint32_t>, std::vector<double>> score(
    Model& model, const ScoreOptions& options, std::vector<std::vector<StepRecord>>* steps = nullptr) {
  const Positions all{Positions::kAll, {}};
  const std::vector<ScoreLine> lines{
      {some_tokens(17, 1), all}, {some_tokens(1, 2), {}}, {some_tokens(21, 3), {Positions::kList, {20, 3, 8}}}};
  std::map<std::pair<std::size_t, std::uint32_t>, std::vector<double>> out;
  auto taken = Scorer(model).score(lines, options, [&](const ScoredRows& rows) {
    for (std::size_t i = 0; i < rows.positions.size(); ++i) {
      const auto row = rows.row(i);
      EXPECT_TRUE(out.insert({{rows.line, rows.positions[i]}, {row.begin(), row.end()}}).second) << "given twice";
    }
  });
  if (steps) *steps = std::move(taken);
  return out;
}

TEST(FailoverOfScores, EveryRowComesOnceAndIsRight) {
  const FakeOptions fake{.windows = {0, 6}, .pages = {40, 40}};
  for (const ScoreOptions& options :
       {ScoreOptions{}, ScoreOptions{.chunk = 4}, ScoreOptions{.chunk = 1}, ScoreOptions{.together = true}}) {
    FakeModel whole(fake);
    const auto want = score(whole, options);
    ASSERT_EQ(want.size(), 21u);
    for (std::size_t n = 0; n < whole.steps().size(); ++n) {
      LossyModel model(fake, [n](std::size_t step) { return step == n; });
      EXPECT_EQ(score(model, options), want);
      EXPECT_EQ(model.losses, 1u);
      EXPECT_EQ(model.rope_rows_held(), 0);
    }
  }
  LossyModel model(fake, [](std::size_t step) { return step == 2; });
  std::vector<std::vector<StepRecord>> steps;
  score(model, {.chunk = 4}, &steps);
  EXPECT_EQ(steps[0].size(), 5u + 2);  // two of its five steps twice
  EXPECT_EQ(steps[0][2].cached, 0u);
  EXPECT_EQ(steps[0][2].rows, 0u) << "logits that were given are not asked for again";
}

TEST(FailoverOfScores, PerplexityCountsEachTokenOnce) {
  const auto ids = some_tokens(90, 7);
  FakeModel whole({.max_step_tokens = 8});
  const Perplexity want = Scorer(whole).perplexity(ids, 32, 1);
  for (std::size_t n = 0; n < whole.steps().size(); ++n) {
    LossyModel model({.max_step_tokens = 8}, [n](std::size_t step) { return step == n; });
    const Perplexity got = Scorer(model).perplexity(ids, 32, 1);
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_EQ(got.nll, want.nll);
  }
}

}  // namespace
}  // namespace backplane::engine
