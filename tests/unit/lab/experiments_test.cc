#include "tools/lab/experiments.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/unit/lab/bench.h"

namespace backplane::lab {
namespace {

class Experiments : public ::testing::Test {
 protected:
  const std::vector<sched::Step>& steps() const { return bench_.model.steps(); }
  Bench bench_;
};

TEST_F(Experiments, CacheComparesTheSameReply) {
  const Json data = run_cache(bench_.setup, {.prompt = 5, .tokens = 4});
  EXPECT_EQ(data["ids"].get<std::vector<TokenId>>(), bench_.model.greedy(bench_.prompts.ids(5), 4));
  EXPECT_EQ(data["equal_tokens"], true);
  EXPECT_EQ(data["equal_from_start"], 4);
  ASSERT_EQ(steps().size(), 8u);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(steps()[i].tokens(), 5 + i);  // all of it anew
    EXPECT_EQ(steps()[i].rows(), 1u);
    EXPECT_EQ(steps()[4 + i].tokens(), i == 0 ? 5u : 1u);
    EXPECT_EQ(data["steps"][i]["length"], 5 + i);
    EXPECT_EQ(data["steps"][i]["computed_without"], 5 + i);
    EXPECT_EQ(data["steps"][i]["computed_with"], i == 0 ? 5 : 1);
  }
  EXPECT_EQ(data["without"]["computed_tokens"], 5 + 6 + 7 + 8);
  EXPECT_EQ(data["with"]["computed_tokens"], 5 + 3);
  EXPECT_GT(bench_.progress_calls, 0u);
}

// A device that rounds differently: from the third of the steps with the cache on, another token is best.
TEST_F(Experiments, CacheSaysWhereRepliesPart) {
  bench_.model.after_step = [&](const sched::Step& step, engine::Logits& logits) {
    if (steps().size() >= 7) logits.values[steps().size() % 7] = 1e9;
    EXPECT_GT(step.tokens(), 0u);
  };
  const Json data = run_cache(bench_.setup, {.prompt = 5, .tokens = 4});
  EXPECT_EQ(data["equal_tokens"], false);
  EXPECT_LT(data["equal_from_start"], 4);
}

TEST_F(Experiments, PhasesCountsEachPrompt) {
  const Json data = run_phases(bench_.setup, {.prompts = {1, 2, 4, 8}, .decodes = 3, .repeats = 2});
  ASSERT_EQ(data["prefill"].size(), 4u);
  EXPECT_EQ(data["prefill"][3]["tokens"], 8);
  EXPECT_EQ(data["decode"]["steps"], 3);
  EXPECT_EQ(steps().size(), 4u * 2 + 3);
  const Work work = bench_.work.of({.past = 0, .tokens = 8, .rows = 1});
  EXPECT_EQ(data["prefill"][3]["flops"].get<double>(), work.flops);
  EXPECT_EQ(data["prefill"][3]["bytes"].get<double>(), work.bytes);
  EXPECT_EQ(data["decode"]["flops"].get<double>(), bench_.work.of({.past = 9, .tokens = 1, .rows = 1}).flops);
}

TEST_F(Experiments, PaddingComputesThePads) {
  const PaddingSizes sizes{.rows = 4, .longest = 16, .reply = 3, .repeats = 2};
  const Json data = run_padding(bench_.setup, sizes);
  EXPECT_EQ(data["equal_tokens"], true);
  EXPECT_EQ(data["equal_rows"], 4);
  std::uint32_t real = 0, longest = 0;
  for (std::uint32_t i = 0; i < 4; ++i) {
    const auto tokens = data["prompts"][i]["tokens"].get<std::uint32_t>();
    real += tokens;
    longest = std::max(longest, tokens);
    EXPECT_EQ(data["prompts"][i]["pads"], 16 - tokens);
    EXPECT_EQ(data["prompts"][i]["reply_ids"].get<std::vector<TokenId>>(),
              bench_.model.greedy(bench_.prompts.ids(tokens, i), 3));
  }
  EXPECT_EQ(longest, 16u);
  EXPECT_EQ(data["padded"]["computed_tokens"], 64);
  EXPECT_EQ(data["ragged"]["computed_tokens"], real);
  // By turns, and really in one step each; logits for the prompts only.
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(steps()[i].tokens(), i % 2 == 0 ? 64u : real);
    EXPECT_EQ(steps()[i].rows(), 4u);
  }
  EXPECT_EQ(steps()[4].tokens(), 64u);  // the replies' first step
  EXPECT_LT(data["ragged"]["flops"], data["padded"]["flops"]);
  EXPECT_LE(data["padded"]["flops"], data["padded_flops_with_masked_attention"]);
}

TEST_F(Experiments, BatchingServesTheTraceInThreeWays) {
  const Json data = run_batching(bench_.setup, {.requests = 10, .seats = 3, .seconds = 0.05, .turns = 2});
  EXPECT_EQ(data["equal_tokens"], true);
  EXPECT_GE(data["requests"].size(), 10u);
  for (const char* way : {"none", "static", "continuous"}) {
    EXPECT_EQ(data[way]["generated_tokens"], data["generated_tokens"]);
    EXPECT_EQ(data[way]["requests"].size(), data["requests"].size());
    const double most = way == std::string("none") ? 1 : 3;
    EXPECT_GE(data[way]["mean_occupancy"], 1);
    EXPECT_LE(data[way]["mean_occupancy"], most);
    for (const Json& sample : data[way]["occupancy"]) EXPECT_LE(sample["sequences"], most);
    EXPECT_LE(data[way]["first_token_s"]["p50"], data[way]["total_s"]["p50"]);
  }
  EXPECT_LE(data["static"]["steps"], data["none"]["steps"]);
  std::uint64_t computed = 0;
  for (const sched::Step& step : steps()) computed += step.tokens();
  const auto prompts = data["prompt_tokens"].get<std::uint64_t>(),
             replies = data["generated_tokens"].get<std::uint64_t>();
  EXPECT_EQ(computed, 2 * 3 * (prompts + replies - data["requests"].size()));  // both turns of all ways, nothing twice
}

TEST_F(Experiments, LogitsCountsRows) {
  const Json data = run_logits(bench_.setup, {.lengths = {4, 12}, .repeats = 2});
  ASSERT_EQ(data["lengths"].size(), 2u);
  EXPECT_EQ(data["lengths"][1]["all_rows"], 12);
  EXPECT_EQ(data["lengths"][1]["last_rows"], 1);
  EXPECT_EQ(data["lengths"][1]["all_bytes"], 12 * data["row_bytes"].get<int>());
  EXPECT_EQ(data["same_last_row"], true);
  EXPECT_EQ(steps().size(), 8u);
}

// Up and down: each length twice, and no token of the text is computed twice on the way up.
TEST_F(Experiments, ContextMeasuresAtEachLength) {
  const Json data = run_context(bench_.setup, {.lengths = {10, 20, 30}, .steps = 4});
  ASSERT_EQ(data["lengths"].size(), 3u);
  EXPECT_EQ(data["lengths"][0]["context"], 12.5);  // of the steps that see 11, 12, 13, 14 tokens
  EXPECT_EQ(data["steps_at_each"], 8);
  for (const Json& row : data["lengths"]) EXPECT_LE(row["seconds"], row["median_s"]);
  std::vector<std::uint32_t> tokens, contexts;
  for (const sched::Step& step : steps()) {
    (step.tokens() > 1 ? tokens : contexts).push_back(step.tokens() > 1 ? step.tokens() : step.max_kv);
  }
  EXPECT_EQ(tokens, (std::vector<std::uint32_t>{10, 10, 10}));
  const std::vector<std::uint32_t> expected = {11, 12, 13, 14, 21, 22, 23, 24, 31, 32, 33, 34, 30, 31,
                                               32, 33, 34, 20, 21, 22, 23, 24, 10, 11, 12, 13, 14};
  EXPECT_EQ(contexts, expected);
}

TEST_F(Experiments, GiveTheModelsError) {
  bench_.model.before_step = [](const sched::Step&) { throw Error(ErrorCode::kDevice, "it broke"); };
  EXPECT_ERROR(run_cache(bench_.setup, {.prompt = 4, .tokens = 2}), ErrorCode::kDevice, "it broke");
  EXPECT_ERROR(run_phases(bench_.setup, {.prompts = {1}, .decodes = 1, .repeats = 1}), ErrorCode::kDevice, "it broke");
  EXPECT_ERROR(run_context(bench_.setup, {.lengths = {4}, .steps = 2}), ErrorCode::kDevice, "it broke");
}

}  // namespace
}  // namespace backplane::lab
