#include "core/engine/scorer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/unit/engine/engine_fixture.h"

namespace backplane::engine {
namespace {

using Rows = std::map<std::pair<std::size_t, std::uint32_t>, std::vector<double>>;

RowsCallback into(Rows& rows) {
  return [&rows](const ScoredRows& block) {
    for (std::size_t i = 0; i < block.positions.size(); ++i) {
      const auto row = block.row(i);
      const bool is_new = rows.insert({{block.line, block.positions[i]}, {row.begin(), row.end()}}).second;
      EXPECT_TRUE(is_new) << "a row came twice";
    }
  };
}

std::vector<double> expected(const FakeModel& model, const std::vector<TokenId>& ids, std::size_t position) {
  return model.expected({ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(position) + 1});
}

const std::vector<ScoreLine> kLines = {{some_tokens(17, 1), {Positions::kAll, {}}},
                                       {some_tokens(1, 2), {Positions::kLast, {}}},
                                       {some_tokens(30, 3), {Positions::kList, {20, 3, 3, 29, 0}}},
                                       {some_tokens(9, 4), {Positions::kLast, {}}}};

class ScorerGroups : public testing::TestWithParam<std::vector<std::uint32_t>> {
 protected:
  FakeModel model_{{.windows = GetParam(), .pages = std::vector<std::uint32_t>(GetParam().size(), 40)}};
};

TEST_P(ScorerGroups, WholeChunkedAndTogetherAreTheSame) {
  Scorer scorer(model_);
  Rows whole;
  const auto steps = scorer.score(kLines, {}, into(whole));
  ASSERT_EQ(whole.size(), 17u + 1 + 4 + 1);
  for (const auto& [key, row] : whole) EXPECT_EQ(row, expected(model_, kLines[key.first].ids, key.second));
  ASSERT_EQ(steps.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_EQ(steps[i].size(), 1u);
    EXPECT_EQ(steps[i][0].tokens, kLines[i].ids.size());
    EXPECT_EQ(steps[i][0].cached, 0u);
  }
  EXPECT_EQ(steps[2][0].rows, 4u);
  for (const std::uint32_t chunk : {1u, 3u, 16u, 64u}) {
    Rows rows;
    const auto chunked = scorer.score(kLines, {.chunk = chunk}, into(rows));
    EXPECT_EQ(rows, whole);
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t n = kLines[i].ids.size();
      ASSERT_EQ(chunked[i].size(), (n + chunk - 1) / chunk);
      std::uint64_t cached = 0;
      for (const StepRecord& step : chunked[i]) {
        EXPECT_LE(step.tokens, chunk);
        EXPECT_EQ(step.cached, cached);
        EXPECT_EQ(step.n_decode, step.tokens == 1 && cached > 0 ? 1u : 0u);
        cached += step.tokens;
      }
      EXPECT_EQ(cached, n);
    }
  }
  Rows rows;
  const auto together = scorer.score(kLines, {.together = true}, into(rows));
  EXPECT_EQ(rows, whole);
  for (const auto& line : together) {
    ASSERT_EQ(line.size(), 1u);
    EXPECT_EQ(line[0].sequences, 4u);
    EXPECT_EQ(line[0].tokens, 57u);
    EXPECT_EQ(line[0].rows, 23u);
  }
  EXPECT_EQ(model_.rope_rows_held(), 0);
}

INSTANTIATE_TEST_SUITE_P(All, ScorerGroups,
                         testing::Values(std::vector<std::uint32_t>{0}, std::vector<std::uint32_t>{5},
                                         std::vector<std::uint32_t>{0, 5, 1}));

std::string refusal(Scorer& scorer, const std::vector<ScoreLine>& lines, const ScoreOptions& options, ErrorCode code) {
  try {
    scorer.score(lines, options, [](const ScoredRows&) {});
  } catch (const Error& e) {
    return e.code() == code ? e.what() : "wrong code: " + std::string(e.what());
  }
  return "accepted";
}

TEST(Scorer, SaysWhatDoesNotFit) {
  FakeModel model({.max_context = 100, .pages = {20}});
  Scorer scorer(model);
  const auto line = [](std::size_t n) { return ScoreLine{some_tokens(n, 1), {}}; };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(refusal(scorer, {line(101)}, {}, ErrorCode::kCapacity), "longer than the context"));
  EXPECT_TRUE(has(refusal(scorer, {line(81)}, {}, ErrorCode::kCapacity), "at most 80 ids"));
  EXPECT_TRUE(
      has(refusal(scorer, {line(40), line(25)}, {.together = true}, ErrorCode::kCapacity), "at most 64 tokens"));
  EXPECT_TRUE(has(refusal(scorer, {line(9)}, {.chunk = 65}, ErrorCode::kCapacity), "at most 64"));
  EXPECT_TRUE(has(refusal(scorer, {line(9)}, {.chunk = 0}, ErrorCode::kUsage), "0"));
  EXPECT_TRUE(has(refusal(scorer, {line(9)}, {.chunk = 2, .together = true}, ErrorCode::kUsage), "choose"));
  EXPECT_TRUE(has(refusal(scorer, {{{}, {}}}, {}, ErrorCode::kUsage), "empty"));
  EXPECT_TRUE(has(refusal(scorer, {{{1, 99}, {}}}, {}, ErrorCode::kUsage), "99"));
  EXPECT_TRUE(has(refusal(scorer, {{{1, 2}, {Positions::kList, {2}}}}, {}, ErrorCode::kUsage), "position 2"));
  EXPECT_EQ(refusal(scorer, {line(80)}, {}, ErrorCode::kCapacity), "accepted");  // in two steps
  EXPECT_EQ(model.rope_rows_held(), 0);
}

TEST(Scorer, LinesTogetherMustFitThePool) {
  FakeModel model({.max_context = 60, .pages = {10}});
  Scorer scorer(model);
  const std::vector<ScoreLine> lines(11, ScoreLine{some_tokens(2, 1), {}});  // a page each
  EXPECT_NE(refusal(scorer, lines, {.together = true}, ErrorCode::kCapacity).find("KV cache is full"),
            std::string::npos);
  EXPECT_EQ(refusal(scorer, lines, {}, ErrorCode::kCapacity), "accepted");
}

TEST(Scorer, KeepsTheLogitsOfAStepSmall) {
  constexpr std::uint32_t kVocabulary = 1 << 21;  // four rows are what a step may hold
  FakeModel model({.vocab_size = kVocabulary});
  Scorer scorer(model);
  const auto ids = some_tokens(10, 1);
  std::vector<std::uint32_t> seen;
  std::size_t most = 0;
  const std::vector<ScoreLine> lines = {{ids, {Positions::kAll, {}}}};
  const auto steps = scorer.score(lines, {}, [&](const ScoredRows& block) {
    for (std::size_t i = 0; i < block.positions.size(); ++i) seen.push_back(block.positions[i]);
    most = std::max(most, block.positions.size());
    const auto row = block.row(0);
    EXPECT_EQ(std::vector<double>(row.begin(), row.end()), expected(model, ids, block.positions[0]));
  });
  EXPECT_EQ(seen, (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(most, 4u);
  EXPECT_EQ(steps[0].size(), 3u);
}

TEST(Scorer, AFailureLeavesItUsable) {
  FakeModel model;
  Scorer scorer(model);
  model.before_step = [](const sched::Step&) { throw Error(ErrorCode::kDevice, "no"); };
  EXPECT_THROW(scorer.score(kLines, {.together = true}, {}), Error);
  model.before_step = {};
  Rows rows;
  scorer.score(kLines, {.together = true}, into(rows));
  EXPECT_EQ(rows.size(), 23u);
  EXPECT_EQ(model.rope_rows_held(), 0);
}

double nll(const FakeModel& model, const std::vector<TokenId>& window, std::size_t target) {
  const auto logits = expected(model, window, target - 1);
  double sum = 0;
  for (const double l : logits) sum += std::exp(l);
  return std::log(sum) - logits[static_cast<std::size_t>(window[target])];
}

TEST(Perplexity, CountsTheSecondHalfOfEachWindow) {
  FakeModel model;
  Scorer scorer(model);
  const auto ids = some_tokens(27, 5);
  const auto window = [&](std::size_t a, std::size_t b) {
    return std::vector<TokenId>(ids.begin() + static_cast<std::ptrdiff_t>(a),
                                ids.begin() + static_cast<std::ptrdiff_t>(b));
  };
  double sum = 0;
  for (std::size_t t = 5; t < 10; ++t) sum += nll(model, window(0, 10), t) + nll(model, window(10, 20), t);
  for (std::size_t t = 3; t < 7; ++t) sum += nll(model, window(20, 27), t);
  std::uint64_t done = 0;
  const Perplexity p = scorer.perplexity(ids, 10, {}, [&](std::uint64_t d, std::uint64_t total) {
    EXPECT_EQ(total, 27u);
    EXPECT_GT(d, done);
    done = d;
  });
  EXPECT_EQ(done, 27u);
  EXPECT_EQ(p.tokens, 14u);
  EXPECT_NEAR(p.nll, sum, 1e-10);
  EXPECT_NEAR(p.value(), std::exp(sum / 14), 1e-9);
}

TEST(Perplexity, PutsBosBeforeEachWindow) {
  FakeModel model;
  Scorer scorer(model);
  const auto ids = some_tokens(6, 5);
  // Windows of four: BOS and three tokens.
  const std::vector<TokenId> a{9, ids[0], ids[1], ids[2]}, b{9, ids[3], ids[4], ids[5]};
  const Perplexity p = scorer.perplexity(ids, 4, 9);
  EXPECT_EQ(p.tokens, 4u);
  EXPECT_NEAR(p.nll, nll(model, a, 2) + nll(model, a, 3) + nll(model, b, 2) + nll(model, b, 3), 1e-10);
}

TEST(Perplexity, RefusesWhatHasNone) {
  FakeModel model;
  Scorer scorer(model);
  EXPECT_THROW(scorer.perplexity({}, 10, {}), Error);
  EXPECT_THROW(scorer.perplexity(some_tokens(1, 1), 10, {}), Error);
  EXPECT_THROW(scorer.perplexity(some_tokens(9, 1), 1, {}), Error);
  EXPECT_THROW(scorer.perplexity(some_tokens(999, 1), 500, {}), Error);  // more than the context
  EXPECT_EQ(scorer.perplexity(some_tokens(1, 1), 10, 3).tokens, 1u);
  model.after_step = [](const sched::Step&, Logits& logits) { logits.values[0] = std::nan(""); };
  EXPECT_THROW(scorer.perplexity(some_tokens(9, 1), 9, {}), Error);
}

}  // namespace
}  // namespace backplane::engine
