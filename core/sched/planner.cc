#include "core/sched/planner.h"

#include <algorithm>

#include "core/kv/pages_needed.h"

namespace backplane::sched {
namespace {

// Pages not yet promised to anyone, by group.
class Promises {
 public:
  explicit Promises(const Snapshot& snapshot) : snapshot_(snapshot) {
    for (const SnapshotGroup& group : snapshot.groups) spare_.push_back(group.free_pages);
    for (const SnapshotSequence& sequence : snapshot.sequences) {
      if (sequence.running) take(sequence);
    }
  }

  // Promises the sequence all its pages, or none.
  bool admit(const SnapshotSequence& sequence) {
    for (std::size_t g = 0; g < spare_.size(); ++g) {
      if (missing(sequence, g) > spare_[g]) return false;
    }
    take(sequence);
    return true;
  }

 private:
  std::int64_t missing(const SnapshotSequence& sequence, std::size_t g) const {
    const kv::Reach reach{snapshot_.groups[g].window, snapshot_.page_size, snapshot_.token_budget};
    const auto needed = static_cast<std::int64_t>(kv::pages_needed(sequence.planned_length, reach));
    const std::int64_t held = g < sequence.held.size() ? sequence.held[g] : 0;
    return std::max<std::int64_t>(0, needed - held);
  }

  void take(const SnapshotSequence& sequence) {
    for (std::size_t g = 0; g < spare_.size(); ++g) spare_[g] -= missing(sequence, g);
  }

  const Snapshot& snapshot_;
  std::vector<std::int64_t> spare_;
};

// Gives sequence i as many of its pending tokens as the budget still has.
void add(StepPlan& plan, std::size_t i, const SnapshotSequence& sequence, std::uint32_t& budget) {
  const std::uint64_t pending = sequence.known - sequence.computed;
  const auto tokens = static_cast<std::uint32_t>(std::min<std::uint64_t>(pending, budget));
  if (tokens == 0) return;
  plan.items.push_back({.sequence = i, .tokens = tokens, .logits = tokens == pending});
  budget -= tokens;
}

}  // namespace

StepPlan plan_step(const Snapshot& snapshot) {
  StepPlan plan;
  Promises promises(snapshot);
  std::uint32_t budget = snapshot.token_budget;
  const auto& sequences = snapshot.sequences;
  const auto pending = [](const SnapshotSequence& s) { return s.known - s.computed; };

  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i].running && pending(sequences[i]) == 1) add(plan, i, sequences[i], budget);
  }
  plan.n_decode = static_cast<std::uint32_t>(plan.items.size());
  std::size_t running = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (!sequences[i].running) continue;
    ++running;
    if (pending(sequences[i]) > 1) add(plan, i, sequences[i], budget);
  }
  for (std::size_t i = 0; i < sequences.size() && budget > 0 && running < snapshot.max_sequences; ++i) {
    if (sequences[i].running) continue;
    if (!promises.admit(sequences[i])) {
      plan.starved = true;
      break;
    }
    add(plan, i, sequences[i], budget);
    ++running;
  }
  return plan;
}

}  // namespace backplane::sched
