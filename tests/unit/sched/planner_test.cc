#include "core/sched/planner.h"

#include <gtest/gtest.h>

#include <random>

#include "core/kv/kv_book.h"

namespace backplane::sched {
namespace {

using Items = std::vector<PlanItem>;

SnapshotSequence running(std::uint64_t known, std::uint64_t computed, std::uint64_t planned, std::uint32_t held) {
  return {.known = known, .computed = computed, .planned_length = planned, .running = true, .held = {held}};
}
SnapshotSequence waiting(std::uint64_t known, std::uint64_t planned) {
  return {.known = known, .computed = 0, .planned_length = planned, .running = false, .held = {0}};
}
Snapshot snapshot(std::uint32_t free_pages, std::vector<SnapshotSequence> sequences, std::uint32_t budget = 8) {
  return {.page_size = 4,
          .token_budget = budget,
          .max_sequences = 4,
          .groups = {{0, free_pages}},
          .sequences = std::move(sequences)};
}

TEST(Planner, HasNothingToDoWithoutSequences) {
  const StepPlan plan = plan_step(snapshot(5, {}));
  EXPECT_TRUE(plan.items.empty());
  EXPECT_FALSE(plan.starved);
}

TEST(Planner, FillsDecodesFirstThenPromptsUpToTheBudget) {
  const StepPlan plan = plan_step(snapshot(5, {running(30, 4, 32, 8), running(9, 8, 12, 3), waiting(6, 7)}));
  EXPECT_EQ(plan.items, (Items{{1, 1, true}, {0, 7, false}}));
  EXPECT_EQ(plan.n_decode, 1u);
}

TEST(Planner, PutsChunksOfSeveralPromptsIntoOneStep) {
  const StepPlan plan = plan_step(snapshot(5, {waiting(3, 4), waiting(4, 4), waiting(9, 9)}));
  EXPECT_EQ(plan.items, (Items{{0, 3, true}, {1, 4, true}, {2, 1, false}}));
  EXPECT_EQ(plan.n_decode, 0u);
}

TEST(Planner, TheLastTokenOfAPromptIsADecodeLikeAnyOther) {
  const StepPlan plan = plan_step(snapshot(5, {running(9, 8, 12, 3), running(20, 19, 24, 6)}));
  EXPECT_EQ(plan.items, (Items{{0, 1, true}, {1, 1, true}}));
  EXPECT_EQ(plan.n_decode, 2u);
}

TEST(Planner, AdmitsNoMoreThanThePoolCanPromise) {
  // The running one holds 1 page and was promised 3; 3 of the 5 free ones are left for others.
  const auto busy = running(3, 2, 12, 1);
  EXPECT_EQ(plan_step(snapshot(5, {busy, waiting(2, 12)})).items.size(), 2u);
  const StepPlan plan = plan_step(snapshot(5, {busy, waiting(2, 13)}));
  EXPECT_EQ(plan.items.size(), 1u);
  EXPECT_TRUE(plan.starved);
}

TEST(Planner, NoneOvertakesOneThatDoesNotFit) {
  const StepPlan plan = plan_step(snapshot(4, {running(3, 2, 8, 1), waiting(2, 16), waiting(1, 1)}));
  EXPECT_EQ(plan.items, (Items{{0, 1, true}}));
  EXPECT_TRUE(plan.starved);
}

TEST(Planner, CountsThePagesAWaitingSequenceAlreadyHolds) {
  SnapshotSequence resumed = waiting(14, 16);
  resumed.computed = 12;
  resumed.held = {3};
  EXPECT_EQ(plan_step(snapshot(1, {resumed})).items, (Items{{0, 2, true}}));
  EXPECT_TRUE(plan_step(snapshot(0, {resumed})).starved);
}

TEST(Planner, KeepsToTheSeats) {
  Snapshot s = snapshot(50, {waiting(1, 1), waiting(1, 1), waiting(1, 1)});
  s.max_sequences = 2;
  EXPECT_EQ(plan_step(s).items.size(), 2u);
  EXPECT_FALSE(plan_step(s).starved);
}

TEST(Planner, EveryGroupMustFit) {
  Snapshot s = snapshot(50, {waiting(16, 40)});
  s.groups.push_back({.window = 6, .free_pages = 5});
  s.sequences[0].held = {0, 0};
  EXPECT_EQ(plan_step(s).items.size(), 1u);  // 10 pages of full attention; never more than 4 or 5 behind the window
  s.groups[1].free_pages = 2;
  EXPECT_TRUE(plan_step(s).starved);
}

// Whole lives in pools of a few pages: with what the planner admits no reservation ever fails, budgets hold, the order
// of arrival holds, and every request ends.
TEST(Planner, WorkloadsInTinyPoolsAlwaysEnd) {
  struct Request {
    std::uint64_t known, computed, end;  // `end` tokens are known when it is done
    SequenceId kv;
    bool running, done;
  };
  std::mt19937 random(23);
  const auto pick = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  for (int round = 0; round < 400; ++round) {
    const std::uint32_t page = 1 + pick(4), budget = 1 + pick(9), window = 1 + pick(7);
    kv::KvBook book(page, {{0, 5}, {window, 5 + (window + budget) / page}}, budget);
    std::vector<Request> requests(1 + pick(8));
    for (Request& r : requests) {
      const std::uint64_t room = book.longest(5 * page);
      r = {1 + pick(static_cast<std::uint32_t>(room)), 0, 0, book.open(), false, false};
      r.end = r.known + 1 + pick(static_cast<std::uint32_t>(room - r.known + 1));
    }
    for (int step = 0;; ++step) {
      ASSERT_LT(step, 2000) << "livelock in round " << round;
      Snapshot s{
          .page_size = page, .token_budget = budget, .max_sequences = 1 + round % 5u, .groups = {}, .sequences = {}};
      for (std::uint32_t g = 0; g < 2; ++g) s.groups.push_back({book.window(g), book.counts(g).free});
      std::vector<std::size_t> alive;
      for (std::size_t i = 0; i < requests.size(); ++i) {
        const Request& r = requests[i];
        if (r.done) continue;
        alive.push_back(i);
        s.sequences.push_back(
            {r.known, r.computed, r.end - 1, r.running, {book.live_pages(r.kv, 0), book.live_pages(r.kv, 1)}});
      }
      if (alive.empty()) break;
      const StepPlan plan = plan_step(s);
      ASSERT_FALSE(plan.items.empty());
      std::uint32_t tokens = 0;
      for (std::size_t k = 0; k < plan.items.size(); ++k) {
        const PlanItem& item = plan.items[k];
        Request& r = requests[alive[item.sequence]];
        ASSERT_GE(item.tokens, 1u);
        ASSERT_LE(r.computed + item.tokens, r.known);
        ASSERT_EQ(item.logits, r.computed + item.tokens == r.known);
        ASSERT_TRUE(k >= plan.n_decode || (r.running && r.known - r.computed == 1));
        ASSERT_EQ(book.reserve(r.kv, item.tokens), kv::Reservation::kReserved);
        book.append(r.kv, item.tokens);
        r.running = true;
        r.computed += item.tokens;
        tokens += item.tokens;
        if (item.logits && ++r.known == r.end) r.done = true;
        if (r.done) book.free(r.kv);
      }
      ASSERT_LE(tokens, budget);
      bool waits = false;  // the running ones are the first to have arrived
      std::uint32_t seats = 0;
      for (const Request& r : requests) {
        if (r.done) continue;
        ASSERT_FALSE(waits && r.running);
        waits |= !r.running;
        seats += r.running;
      }
      ASSERT_LE(seats, s.max_sequences);
    }
    for (std::uint32_t g = 0; g < 2; ++g) ASSERT_EQ(book.counts(g).free, book.counts(g).total);
  }
}

}  // namespace
}  // namespace backplane::sched
