// Whole workloads in pools of a few pages: everything ends, nobody waits for ever, the accounts are exact.
// BACKPLANE_WORKLOADS says how many random ones (default: ten thousand).
#include <algorithm>
#include <cstdlib>

#include "tests/unit/sched/simulation.h"

namespace backplane::sched::test {
namespace {

using Tokens = std::vector<TokenId>;

class Picker {
 public:
  explicit Picker(std::uint32_t seed) : random_(seed) {}
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
  bool one_in(std::uint32_t n) { return below(n) == 0; }

  Setting setting() {
    Setting s;
    s.page = 1 + below(4);
    s.options.max_sequences = 1 + below(6);
    s.options.token_budget = s.options.max_sequences + below(9);
    s.options.max_rows = s.options.max_sequences + below(4);
    s.options.long_prompt = one_in(3) ? 0 : 1 + below(s.options.token_budget);
    s.options.headroom = one_in(4) ? Snapshot::kNever : below(8);
    s.prefix_cache = !one_in(4);
    s.groups.clear();
    for (std::uint32_t g = 1 + below(3); g > 0; --g) {
      const std::uint32_t window = one_in(2) ? 0 : 1 + below(7);
      s.groups.push_back({window, 2 + below(7) + (window > 0 ? (window + s.options.token_budget) / s.page : 0)});
    }
    return s;
  }

  Asked request(std::uint32_t longest) {
    Asked asked;
    asked.prompt.resize(1 + below(longest));
    for (TokenId& token : asked.prompt) token = static_cast<TokenId>(one_in(12));
    asked.generate = 1 + below(std::min(12u, longest - static_cast<std::uint32_t>(asked.prompt.size()) + 1));
    if (one_in(5)) asked.answers = 2 + below(3);
    if (one_in(4)) asked.priority = static_cast<std::int32_t>(below(3)) - 1;
    asked.scored = one_in(6);
    return asked;
  }

 private:
  std::mt19937 random_;
};

struct Seen {
  std::uint64_t preempted = 0, dropped = 0, found = 0, evicted = 0, copies = 0, mixed = 0, stalled = 0, ended = 0;
};

// A life with arrivals, cancellations, lost contents and pages kept aside, and then until all has ended.
void live(std::uint32_t seed, Seen& seen) {
  Picker pick(seed);
  const Setting setting = pick.setting();
  Simulation sim(setting);
  const auto longest = static_cast<std::uint32_t>(std::min<std::uint64_t>(sim.longest(), 30));
  std::uint64_t work = 0;  // tokens of all answers, computed once
  std::vector<std::uint64_t> requests;
  const std::uint32_t count = 1 + pick.below(10);
  const bool mishaps = pick.one_in(3);
  while (requests.size() < count) {
    if (pick.one_in(2)) {
      const Asked asked = pick.request(longest);
      work += asked.answers * (asked.prompt.size() + asked.generate);
      requests.push_back(sim.submit(asked));
    }
    if (mishaps && pick.one_in(8) && !requests.empty()) {
      ASSERT_NO_FATAL_FAILURE(sim.cancel(requests[pick.below(static_cast<std::uint32_t>(requests.size()))]));
    }
    if (mishaps && pick.one_in(16)) sim.lose_contents();
    if (pick.one_in(8)) sim.keep_aside(1 + pick.below(setting.options.token_budget));
    if (!sim.idle()) {
      ASSERT_NO_FATAL_FAILURE(sim.step());
    }
  }
  // From here on nothing comes in. In every step the first one that runs gets on by a token, and the first of all is
  // never preempted; so there are at most two steps for every token of work.
  const std::uint64_t most = sim.steps() + 2 * work;
  while (!sim.idle()) {
    ASSERT_NO_FATAL_FAILURE(sim.step());
    ASSERT_LE(sim.steps(), most) << "no end in sight";
  }
  ASSERT_NO_FATAL_FAILURE(sim.finish());
  if (setting.options.headroom == Snapshot::kNever && !mishaps) {
    for (const auto& answer : sim.ended()) ASSERT_EQ(answer->generated, answer->generate);
  }
  seen.preempted += sim.scheduler().counts().preempted;
  seen.dropped += sim.scheduler().counts().dropped;
  seen.found += sim.book().prefix_counts().found;
  seen.evicted += sim.book().prefix_counts().evicted;
  seen.copies += sim.copies;
  seen.mixed += sim.mixed;
  seen.stalled += sim.stalled;
  seen.ended += sim.ended().size();
}

TEST(Workloads, AllEndWithExactAccounts) {
  const char* wanted = std::getenv("BACKPLANE_WORKLOADS");
  const std::uint64_t workloads = wanted ? std::strtoull(wanted, nullptr, 10) : 10000;
  Seen seen;
  for (std::uint32_t seed = 0; seed < workloads; ++seed) {
    ASSERT_NO_FATAL_FAILURE(live(seed, seen)) << "workload " << seed;
  }
  if (workloads < 1000) return;
  for (const std::uint64_t each : {seen.found, seen.evicted, seen.copies, seen.mixed, seen.ended}) {
    EXPECT_GT(each, workloads);
  }
  EXPECT_GT(seen.preempted, workloads / 4);
  EXPECT_GT(seen.dropped, workloads / 4);
  EXPECT_GT(seen.stalled, workloads / 20);
}

Tokens text(std::size_t n, TokenId first) {
  Tokens out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = first + static_cast<TokenId>(i);
  return out;
}

// An endless stream of small requests, each of which would fit, must not keep out one that needs the whole pool.
TEST(Workloads, ManySmallOnesDoNotStarveALargeOne) {
  Setting setting;
  setting.groups = {{0, 6}};
  setting.options = {.token_budget = 8, .max_sequences = 4, .max_rows = 8, .long_prompt = 4, .headroom = 0};
  Simulation sim(setting);
  for (TokenId i = 0; i < 3; ++i) sim.submit({.prompt = text(4, 100 * i), .generate = 8});
  const std::uint64_t large = sim.submit({.prompt = text(20, 5000), .generate = 5});
  const auto alive = [&] {
    return std::any_of(sim.alive().begin(), sim.alive().end(),
                       [&](const auto& each) { return each.second->request == large; });
  };
  for (TokenId i = 3; alive(); ++i) {
    ASSERT_LT(i, 60);
    sim.submit({.prompt = text(4, 100 * i), .generate = 8});
    ASSERT_NO_FATAL_FAILURE(sim.step());
  }
  // The three before it have 33 tokens to compute together, of which each step does at least one.
  for (const auto& answer : sim.ended()) {
    if (answer->request == large) {
      EXPECT_LE(answer->began, 34u);
    }
  }
}

// A stream of long prompts leaves half of each step to short ones.
TEST(Workloads, LongPromptsDoNotStarveShortOnes) {
  for (const std::uint32_t limit : {0u, 32u}) {
    Setting setting;
    setting.groups = {{0, 400}};
    setting.options = {.token_budget = 64, .max_sequences = 16, .max_rows = 64, .long_prompt = limit, .headroom = 0};
    Simulation sim(setting);
    for (TokenId i = 0; i < 8; ++i) sim.submit({.prompt = text(640, 1000 * i), .generate = 1});
    ASSERT_NO_FATAL_FAILURE(sim.step());
    const std::uint64_t small = sim.submit({.prompt = text(8, 90000), .generate = 1});
    std::uint64_t began = 0;
    while (!sim.idle()) ASSERT_NO_FATAL_FAILURE(sim.step());
    for (const auto& answer : sim.ended()) {
      if (answer->request == small) began = answer->began;
    }
    if (limit > 0) {
      EXPECT_EQ(began, 2u);
    } else {
      EXPECT_GT(began, 20u) << "the setting makes no difference";
    }
    EXPECT_LE(sim.steps(), 82u) << "and no step is wasted";
  }
}

// The other way around: short ones that never stop coming leave half to the long one.
TEST(Workloads, ShortPromptsDoNotStarveALongOne) {
  Setting setting;
  setting.groups = {{0, 400}};
  setting.options = {.token_budget = 64, .max_sequences = 16, .max_rows = 64, .long_prompt = 32, .headroom = 0};
  Simulation sim(setting);
  const std::uint64_t large = sim.submit({.prompt = text(640, 0), .generate = 1});
  for (TokenId i = 0; sim.alive().begin()->second->request == large; ++i) {
    ASSERT_LE(i, 20);
    for (TokenId k = 0; k < 4; ++k) sim.submit({.prompt = text(30, 1000 * (4 * i + k + 1)), .generate = 1});
    ASSERT_NO_FATAL_FAILURE(sim.step());
  }
  while (!sim.idle()) ASSERT_NO_FATAL_FAILURE(sim.step());
  ASSERT_NO_FATAL_FAILURE(sim.finish());
}

// Decoding sequences get their token in every step, whatever prompts there are.
TEST(Workloads, PromptsNeverHoldUpDecodes) {
  Setting setting;
  setting.groups = {{0, 100}};
  setting.options = {
      .token_budget = 8, .max_sequences = 8, .max_rows = 8, .long_prompt = 4, .headroom = Snapshot::kNever};
  Simulation sim(setting);
  for (TokenId i = 0; i < 4; ++i) sim.submit({.prompt = text(2, 10 * i), .generate = 40});
  ASSERT_NO_FATAL_FAILURE(sim.step());
  for (TokenId i = 0; i < 4; ++i) sim.submit({.prompt = text(60, 1000 * i), .generate = 2});
  for (int i = 0; i < 39; ++i) ASSERT_NO_FATAL_FAILURE(sim.step());
  for (const auto& [order, answer] : sim.alive()) EXPECT_GE(answer->request, 4u);
  while (!sim.idle()) ASSERT_NO_FATAL_FAILURE(sim.step());
  EXPECT_EQ(sim.scheduler().counts().preempted, 0u);
}

// But for pages that are shared behind a window: who leaves them behind frees none.
TEST(Workloads, WithRoomPromisedForAllOfItNobodyIsPreempted) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    Picker pick(seed);
    Setting setting = pick.setting();
    setting.options.headroom = Snapshot::kNever;
    const bool windows =
        std::any_of(setting.groups.begin(), setting.groups.end(), [](auto& g) { return g.window > 0; });
    if (windows) setting.prefix_cache = false;
    Simulation sim(setting);
    const auto longest = static_cast<std::uint32_t>(std::min<std::uint64_t>(sim.longest(), 30));
    for (int i = 0; i < 12; ++i) {
      Asked asked = pick.request(longest);
      asked.priority = 0;
      if (windows) asked.answers = 1;
      sim.submit(asked);
    }
    while (!sim.idle()) ASSERT_NO_FATAL_FAILURE(sim.step()) << seed;
    EXPECT_EQ(sim.scheduler().counts().preempted, 0u) << seed;
    EXPECT_EQ(sim.stalled, 0u) << seed;
  }
}

TEST(Workloads, WhatWasPreemptedIsMostlyFoundAgain) {
  Setting setting;
  setting.groups = {{0, 12}};
  setting.options = {.token_budget = 32, .max_sequences = 4, .max_rows = 32, .long_prompt = 0, .headroom = 0};
  std::uint64_t with = 0, without = 0;
  for (const bool cache : {false, true}) {
    setting.prefix_cache = cache;
    Simulation sim(setting);
    sim.submit({.prompt = text(20, 0), .generate = 20});
    sim.submit({.prompt = text(20, 1000), .generate = 4});
    while (!sim.idle()) ASSERT_NO_FATAL_FAILURE(sim.step());
    EXPECT_EQ(sim.scheduler().counts().preempted, 0u);
    (cache ? with : without) = sim.computed;
  }
  EXPECT_EQ(with, without) << "nothing was preempted, nothing is found";
  for (const bool cache : {false, true}) {
    setting.prefix_cache = cache;
    Simulation sim(setting);
    sim.submit({.prompt = text(20, 0), .generate = 9});
    sim.submit({.prompt = text(20, 1000), .generate = 20});
    while (!sim.idle()) ASSERT_NO_FATAL_FAILURE(sim.step());
    EXPECT_EQ(sim.scheduler().counts().preempted, 1u);
    (cache ? with : without) = sim.computed;
  }
  EXPECT_EQ(without, 28u + 39 + 23) << "all it had";
  EXPECT_LE(with, 28u + 39 + 8);
}

}  // namespace
}  // namespace backplane::sched::test
