#include "core/sched/planner.h"

#include <gtest/gtest.h>

namespace backplane::sched {
namespace {

// A snapshot with pages of 4 tokens in one group, and a plan of it.
class Planner : public testing::Test {
 protected:
  SnapshotSequence& running(std::uint64_t known, std::uint64_t computed, std::uint64_t planned = 0) {
    return add({.running = true, .known = known, .computed = computed, .planned_length = std::max(planned, known)},
               static_cast<std::uint32_t>((computed + 3) / 4));
  }
  SnapshotSequence& waiting(std::uint64_t known, std::uint64_t planned = 0) {
    return add({.known = known, .planned_length = std::max(planned, known)}, 0);
  }
  // With the pages of its first tokens in the cache, `idle` of which nobody holds.
  SnapshotSequence& found(std::uint64_t known, std::uint64_t computed, std::uint32_t idle) {
    SnapshotSequence& s =
        add({.known = known, .computed = computed, .planned_length = known}, static_cast<std::uint32_t>(computed / 4));
    s_.pages.back().idle = idle;
    return s;
  }
  SnapshotSequence& keeper(std::uint64_t known, std::uint64_t computed) {
    return add({.keeps_pages = true, .known = known, .computed = computed, .planned_length = known},
               static_cast<std::uint32_t>((computed + 3) / 4));
  }

  StepPlan plan(std::uint32_t available) {
    s_.groups[0].available = available;
    return plan_step(s_);
  }
  using Tokens = std::vector<std::pair<std::size_t, std::uint32_t>>;  // sequence and tokens
  static Tokens tokens(const StepPlan& plan) {
    Tokens out;
    for (const PlanItem& item : plan.items) out.emplace_back(item.sequence, item.tokens);
    return out;
  }

  Snapshot s_{.page_size = 4,
              .token_budget = 8,
              .max_sequences = 4,
              .max_rows = 8,
              .long_prompt = 0,
              .headroom = 0,
              .admits = true,
              .groups = {{}},
              .sequences = {},
              .pages = {}};

 private:
  SnapshotSequence& add(SnapshotSequence sequence, std::uint32_t held) {
    s_.pages.push_back({held, 0});
    return s_.sequences.emplace_back(sequence);
  }
};

TEST_F(Planner, HasNothingToDoWithoutSequences) {
  const StepPlan p = plan(5);
  EXPECT_TRUE(p.items.empty());
  EXPECT_FALSE(p.victim);
  EXPECT_FALSE(p.short_of_pages);
}

TEST_F(Planner, FillsDecodesFirstThenPromptsUpToTheBudget) {
  running(30, 4);
  running(9, 8);
  waiting(6);
  const StepPlan p = plan(20);
  EXPECT_EQ(p.items, (std::vector<PlanItem>{{1, 1, 1, true}, {0, 7, 0, false}}));
  EXPECT_EQ(p.n_decode, 1u);
  EXPECT_FALSE(p.short_of_pages);
}

TEST_F(Planner, PutsChunksOfSeveralPromptsIntoOneStep) {
  waiting(3);
  waiting(4);
  waiting(9);
  const StepPlan p = plan(5);
  EXPECT_EQ(p.items, (std::vector<PlanItem>{{0, 3, 1, true}, {1, 4, 1, true}, {2, 1, 0, false}}));
  EXPECT_EQ(p.n_decode, 0u);
}

TEST_F(Planner, TheLastTokenOfAPromptIsADecodeLikeAnyOther) {
  running(9, 8);
  running(20, 19);
  found(5, 4, 1);
  waiting(1);
  const StepPlan p = plan(9);
  EXPECT_EQ(tokens(p), (Tokens{{0, 1}, {1, 1}, {2, 1}, {3, 1}}));
  EXPECT_EQ(p.n_decode, 3u) << "a first token follows none";
}

TEST_F(Planner, PromisesWhatIsKnownAndTheHeadroom) {
  running(3, 2, 20);  // has 1 page
  waiting(5, 20);
  EXPECT_EQ(plan(2).items.size(), 2u);
  EXPECT_EQ(plan(1).items.size(), 1u);
  EXPECT_TRUE(plan(1).short_of_pages);
  s_.headroom = 4;  // 7 and 9 tokens: 1 page and 3 pages
  EXPECT_EQ(plan(4).items.size(), 2u);
  EXPECT_EQ(plan(3).items.size(), 1u);
  s_.headroom = Snapshot::kNever;  // 5 pages each
  EXPECT_EQ(plan(9).items.size(), 2u);
  EXPECT_EQ(plan(8).items.size(), 1u);
}

TEST_F(Planner, NoneOvertakesOneThatDoesNotFit) {
  running(3, 2);
  waiting(16);
  waiting(1);
  const StepPlan p = plan(3);
  EXPECT_EQ(tokens(p), (Tokens{{0, 1}}));
  EXPECT_TRUE(p.short_of_pages);
  EXPECT_FALSE(p.wants_more);
}

TEST_F(Planner, WhatIsInTheCacheCostsOnlyWhatNobodyHolds) {
  found(14, 12, 0);
  EXPECT_EQ(tokens(plan(1)), (Tokens{{0, 2}}));
  EXPECT_TRUE(plan(0).items.empty());
  s_.pages[0].idle = 3;
  EXPECT_TRUE(plan(3).items.empty());
  EXPECT_EQ(tokens(plan(4)), (Tokens{{0, 2}}));
}

TEST_F(Planner, KeepsToTheSeats) {
  for (int i = 0; i < 3; ++i) waiting(1);
  s_.max_sequences = 2;
  EXPECT_EQ(plan(50).items.size(), 2u);
  EXPECT_FALSE(plan(50).short_of_pages);
  EXPECT_FALSE(plan(50).wants_more);
}

TEST_F(Planner, AsksForMoreWhileThereIsRoom) {
  waiting(1);
  EXPECT_TRUE(plan(50).wants_more);
  waiting(7);
  EXPECT_FALSE(plan(50).wants_more) << "the budget is used up";
}

TEST_F(Planner, EveryGroupMustFit) {
  waiting(16, 40);
  s_.headroom = Snapshot::kNever;
  s_.groups = {{0, 10}, {6, 4}};
  s_.pages = {{}, {}};
  EXPECT_EQ(plan(10).items.size(), 1u);  // 10 pages of full attention; behind the window never more than 4
  EXPECT_TRUE(plan(9).items.empty());
  s_.groups[1].available = 3;
  EXPECT_TRUE(plan(10).items.empty());
}

TEST_F(Planner, PreemptsTheLastOneWhenAnEarlierOneLacksAPage) {
  running(9, 8);
  running(5, 3);
  running(6, 5);
  StepPlan p = plan(0);
  EXPECT_EQ(p.victim, 2u);
  EXPECT_TRUE(p.items.empty());
  EXPECT_TRUE(p.short_of_pages);
  s_.pages[2].held = 0;  // it has nothing to give
  EXPECT_EQ(plan(0).victim, 1u);
  EXPECT_FALSE(plan(1).victim);
}

TEST_F(Planner, APromptTakesFewerTokensRatherThanAnothersPages) {
  running(30, 6);
  running(6, 5);
  EXPECT_EQ(tokens(plan(1)), (Tokens{{1, 1}, {0, 6}}));
  EXPECT_EQ(tokens(plan(0)), (Tokens{{1, 1}, {0, 2}})) << "its last page has room for two";
  s_.sequences[0].computed = 8;
  EXPECT_EQ(plan(0).victim, 1u);
}

TEST_F(Planner, TheLastOneWaitsForItsPage) {
  running(6, 5);
  running(9, 8);
  const StepPlan p = plan(0);
  EXPECT_FALSE(p.victim);
  EXPECT_EQ(tokens(p), (Tokens{{0, 1}}));
  EXPECT_TRUE(p.short_of_pages);
}

TEST_F(Planner, WhoOnlyWaitsGivesItsPagesFirst) {
  keeper(9, 4);
  running(9, 8);
  running(6, 5);
  keeper(9, 4).ready = false;
  EXPECT_EQ(plan(0).victim, 3u);
  s_.sequences.pop_back();
  s_.pages.pop_back();
  EXPECT_EQ(plan(0).victim, 0u) << "although it would come first";
}

TEST_F(Planner, WhenNobodyRunsThoseBehindYieldToTheFirst) {
  waiting(20);
  keeper(9, 8);
  keeper(9, 8).ready = false;
  StepPlan p = plan(3);
  EXPECT_EQ(p.victim, 2u);
  running(3, 1);
  EXPECT_FALSE(plan(3).victim) << "somebody will end";
}

TEST_F(Planner, AStepThatPreemptsAdmitsNothing) {
  running(6, 5);
  waiting(1);
  EXPECT_EQ(plan(9).items.size(), 2u);
  s_.admits = false;
  EXPECT_EQ(plan(9).items.size(), 1u);
  EXPECT_FALSE(plan(9).wants_more);
}

TEST_F(Planner, ASharedPageTakesACopy) {
  running(7, 6).shared_tail = true;
  EXPECT_TRUE(plan(0).items.empty());
  EXPECT_EQ(tokens(plan(1)), (Tokens{{0, 1}}));
  s_.sequences[0].known = 20;
  s_.sequences[0].planned_length = 20;
  EXPECT_EQ(tokens(plan(2)), (Tokens{{0, 6}})) << "two in the copy, four in another page";
  s_.sequences[0].known = 7;
  s_.sequences[0].planned_length = 7;
  waiting(8);
  EXPECT_EQ(plan(3).items.size(), 2u);
  EXPECT_EQ(plan(2).items.size(), 1u) << "the copy has been promised";
}

TEST_F(Planner, ALongPromptSharesWithShortOnes) {
  s_.long_prompt = 4;
  running(6, 5);
  running(40, 0);
  running(3, 0);
  EXPECT_EQ(tokens(plan(50)), (Tokens{{0, 1}, {1, 4}, {2, 3}})) << "half of 7, and what the short one leaves";
  running(3, 0);
  EXPECT_EQ(tokens(plan(50)), (Tokens{{0, 1}, {1, 3}, {2, 3}, {3, 1}}));
}

TEST_F(Planner, ShortOnesOvertakeWaitingLongOnes) {
  s_.long_prompt = 4;
  running(40, 0);
  waiting(40);
  waiting(2);
  waiting(40);
  EXPECT_EQ(tokens(plan(50)), (Tokens{{0, 6}, {2, 2}}));
  s_.sequences[0].computed = 36;
  EXPECT_EQ(tokens(plan(50)), (Tokens{{0, 4}, {1, 2}, {2, 2}})) << "the first one is no longer long";
  s_.sequences[0].computed = 0;
  s_.sequences[1].computed = 36;
  EXPECT_EQ(tokens(plan(50)), (Tokens{{0, 4}, {1, 4}})) << "nor is one that is mostly in the cache";
}

TEST_F(Planner, ALongOneOfBetterPriorityDoesNotWaitForAnother) {
  s_.long_prompt = 4;
  waiting(40).priority = -1;
  running(40, 0);
  EXPECT_EQ(tokens(plan(50)), (Tokens{{0, 6}, {1, 2}}));
  s_.sequences[0].priority = 0;
  EXPECT_EQ(tokens(plan(50)), (Tokens{{1, 8}}));
}

TEST_F(Planner, KeepsToTheRows) {
  s_.max_rows = 4;
  running(6, 5);
  SnapshotSequence& scored = running(9, 0);
  scored.rows_end = 8;
  running(7, 4);
  const StepPlan p = plan(50);
  EXPECT_EQ(p.items, (std::vector<PlanItem>{{0, 1, 1, true}, {1, 3, 3, false}, {2, 2, 0, false}}));
  s_.sequences[1].rows_begin = 5;  // up to there it has been scored before
  EXPECT_EQ(plan(50).items[1], (PlanItem{1, 7, 2, false}));
  s_.sequences[1].known = 7;
  s_.sequences[1].rows_end = 6;
  EXPECT_EQ(plan(50).items[1], (PlanItem{1, 7, 2, true})) << "one of the prompt's and the last";
}

TEST_F(Planner, ALowerPriorityYieldsItsSeatAndItsPages) {
  s_.max_sequences = 2;
  waiting(5).priority = -1;
  running(6, 5);
  running(6, 5).priority = 7;
  EXPECT_EQ(plan(50).victim, 2u) << "the seat";
  s_.max_sequences = 4;
  EXPECT_EQ(plan(1).victim, 2u) << "the pages";
  EXPECT_FALSE(plan(2).victim);
  s_.sequences[0].priority = 7;
  std::swap(s_.sequences[0], s_.sequences[2]);
  std::swap(s_.pages[0], s_.pages[2]);
  s_.max_sequences = 2;
  EXPECT_FALSE(plan(50).victim) << "equal priorities wait";
  EXPECT_EQ(plan(50).items.size(), 2u);
}

}  // namespace
}  // namespace backplane::sched
