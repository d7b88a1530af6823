// Who waits, who runs, and what the next step computes: makes snapshots for the planner and carries out its plans.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "core/kv/kv_book.h"
#include "core/sched/planner.h"
#include "core/sched/sequence.h"

namespace backplane::sched {

// See Snapshot.
struct SchedulerOptions {
  std::uint32_t token_budget = 2048;  // at least max_sequences
  std::uint32_t max_sequences = 64;
  std::uint32_t max_rows = 2048;  // at least max_sequences
  std::uint32_t long_prompt = 1024;
  std::uint64_t headroom = 64;
};

// One sequence's part of a step: its next `tokens` pending tokens.
struct Share {
  Sequence* sequence = nullptr;
  std::uint32_t tokens = 0;
  bool logits = false;    // the last pending ones: logits of the last one are wanted
  bool admitted = false;  // it waited before this step

  // Before the share is committed: the positions [first, second) of its tokens that Sequence::rows_begin is about.
  std::pair<std::uint64_t, std::uint64_t> rows() const {
    const std::uint64_t begin = std::max(sequence->computed, sequence->rows_begin);
    return {begin, std::max(begin, std::min(sequence->computed + tokens, sequence->rows_end))};
  }
};

struct Schedule {
  std::vector<Share> shares;  // decodes first; their pages are reserved
  std::uint32_t n_decode = 0;
  std::vector<Sequence*> dropped;  // have lost their pages, and their seat if they had one; not ready until made so
};

struct SchedulerCounts {
  std::uint64_t preempted = 0;  // sequences that lost their seat
  std::uint64_t dropped = 0;    // sequences that waited and lost the pages they had
};

// One thread at a time. Sequences are the caller's; they must stay in place from add to remove, and their `order` must
// not change. A sequence is opened in the book before it is added, and freed there after it is removed.
class Scheduler {
 public:
  // Frees pages that are kept outside of all sequences here; false: there are none.
  using Reclaim = std::function<bool()>;

  Scheduler(kv::KvBook& book, const SchedulerOptions& options);

  // It waits. It may have tokens in the cache already.
  void add(Sequence& sequence);
  // Running or waiting.
  void remove(Sequence& sequence);

  // The first `n` of those that wait.
  std::vector<Sequence*> next_in_line(std::size_t n) const;
  // A sequence that waits gives up what it has in the cache.
  void forget(Sequence& sequence);

  // Plans a step, preempts, admits and reserves pages. Valid until the next call; each share is then committed or
  // its sequence removed. Without shares there are no sequences, or none is ready, or pages are held elsewhere.
  const Schedule& next(const Reclaim& reclaim = {});
  // The share's tokens are in the cache.
  void commit(const Share& share);
  // The contents of all pages are gone: everybody catches up from the first token on.
  void start_over();

  std::size_t running() const { return running_.size(); }
  std::size_t waiting() const { return waiting_.size(); }
  std::uint32_t free_seats() const { return options_.max_sequences - static_cast<std::uint32_t>(running_.size()); }
  const SchedulerOptions& options() const { return options_; }
  const SchedulerCounts& counts() const { return counts_; }

 private:
  struct Earlier {
    bool operator()(const Sequence* a, const Sequence* b) const { return a->order < b->order; }
  };

  bool snapshot(std::size_t candidates);
  void show(Sequence& sequence, bool ready);
  void drop(Sequence& sequence);
  void seat(Sequence& sequence);
  void carry_out(const StepPlan& plan);

  kv::KvBook& book_;
  SchedulerOptions options_;
  std::vector<Sequence*> running_;  // in order
  std::set<Sequence*, Earlier> waiting_;
  std::set<Sequence*, Earlier> keepers_;  // of these, such as have tokens in the cache
  SchedulerCounts counts_;
  Schedule schedule_;
  // Reused from step to step.
  Snapshot snapshot_;
  std::vector<Sequence*> shown_, candidates_;  // in order; shown_: by index in the snapshot
};

}  // namespace backplane::sched
