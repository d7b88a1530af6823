// Whole lives of sequences: a scheduler with its book, over a memory that really has contents, and nothing that
// computes.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/sched/scheduler.h"

namespace backplane::sched::test {

struct Setting {
  std::uint32_t page = 4;
  std::vector<kv::GroupConfig> groups = {{0, 8}};
  SchedulerOptions options;
  bool prefix_cache = true;
};

struct Asked {
  std::vector<TokenId> prompt;
  std::uint32_t generate = 1;  // tokens
  std::uint32_t answers = 1;
  std::int32_t priority = 0;
  bool scored = false;  // the prompt's logits are wanted
};

// One answer.
struct Answer : Sequence {
  std::uint64_t request = 0;
  std::uint32_t generate = 0, generated = 0, answers = 1;
  std::uint64_t arrived = 0, began = 0;  // steps; began: first admitted
  bool started = false;
  std::vector<bool> scored;  // by position of the prompt
};

// Checks, at every step, what must hold for any scheduler that keeps its promises. A broken one fails the test.
class Simulation {
 public:
  explicit Simulation(const Setting& setting)
      : setting_(setting),
        book_(setting.page, setting.groups, setting.options.token_budget),
        scheduler_(book_, setting.options) {
    for (const auto& group : setting.groups) memory_.emplace_back(group.pages * setting.page, 0);
  }

  std::uint64_t longest() const { return book_.longest(1000); }
  const kv::KvBook& book() const { return book_; }
  const Scheduler& scheduler() const { return scheduler_; }
  std::uint64_t steps() const { return steps_; }
  bool idle() const { return alive_.empty(); }
  const std::map<Order, std::unique_ptr<Answer>>& alive() const { return alive_; }
  // Those that came to their end, by themselves.
  const std::vector<std::unique_ptr<Answer>>& ended() const { return ended_; }
  std::uint64_t computed = 0, decodes = 0, chunks = 0, mixed = 0, copies = 0, stalled = 0;

  std::uint64_t submit(const Asked& asked);
  void cancel(std::uint64_t request);
  // Pages held outside of all sequences here, until they are wanted.
  void keep_aside(std::uint32_t tokens);
  void lose_contents();
  void step();
  void finish() {  // with exact accounts
    ASSERT_EQ(scheduler_.running() + scheduler_.waiting(), 0u);
    while (reclaim()) {
    }
    for (std::uint32_t g = 0; g < book_.groups(); ++g) ASSERT_EQ(book_.counts(g).held, 0u);
    ASSERT_EQ(book_.fault(), "");
  }

 private:
  // Stands for a text, each for one: what K and V of its last token depend on.
  int after(int text, TokenId token) {
    return texts_.try_emplace({text, token}, static_cast<int>(texts_.size()) + 1).first->second;
  }
  bool reclaim();
  void expect_no_overtaking(const std::vector<Order>& waited, const Schedule& schedule);
  void expect_decodes(const std::map<Order, std::uint64_t>& lacked_one, const Schedule& schedule);
  void compute(const Share& share);
  void advance(Answer& answer);
  void fork(Answer& first);
  void end(Answer& answer, bool by_itself);

  Setting setting_;
  kv::KvBook book_;
  Scheduler scheduler_;
  std::vector<std::vector<int>> memory_;  // by group and slot
  std::map<std::pair<int, TokenId>, int> texts_;
  std::map<Order, std::unique_ptr<Answer>> alive_;
  std::vector<std::unique_ptr<Answer>> ended_;
  std::vector<SequenceId> aside_;
  std::uint64_t steps_ = 0, next_ = 0;
};

}  // namespace backplane::sched::test
