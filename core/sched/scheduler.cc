#include "core/sched/scheduler.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"

namespace backplane::sched {
namespace {

// How many waiting sequences the planner is shown: looking up what the cache has for them takes time, and when the
// first one can't be admitted the others don't matter.
constexpr std::size_t kFirstCandidates = 8, kMostCandidates = 128;

// How much of a sequence may come from the cache: its last token must be computed, to give logits, and so must those
// whose own logits are wanted.
std::uint64_t most_cached(const Sequence& sequence) {
  const std::uint64_t all = sequence.tokens.size() - 1;
  return sequence.rows_begin < sequence.rows_end ? std::min(all, sequence.rows_begin) : all;
}

}  // namespace

Scheduler::Scheduler(kv::KvBook& book, const SchedulerOptions& options) : book_(book), options_(options) {
  snapshot_.page_size = book.page_size();
  snapshot_.token_budget = options.token_budget;
  snapshot_.max_sequences = options.max_sequences;
  snapshot_.max_rows = options.max_rows;
  snapshot_.long_prompt = options.long_prompt;
  snapshot_.headroom = options.headroom;
}

void Scheduler::add(Sequence& sequence) {
  sequence.running = false;
  waiting_.insert(&sequence);
  if (sequence.computed > 0) keepers_.insert(&sequence);
}

void Scheduler::remove(Sequence& sequence) {
  if (sequence.running) {
    running_.erase(std::lower_bound(running_.begin(), running_.end(), &sequence, Earlier()));
  } else {
    waiting_.erase(&sequence);
    keepers_.erase(&sequence);
  }
  sequence.running = false;
}

void Scheduler::forget(Sequence& sequence) {
  sequence.computed = book_.truncate(sequence.kv, 0);
  keepers_.erase(&sequence);
}

std::vector<Sequence*> Scheduler::next_in_line(std::size_t n) const {
  std::vector<Sequence*> first;
  for (auto it = waiting_.begin(); it != waiting_.end() && first.size() < n; ++it) first.push_back(*it);
  return first;
}

const Schedule& Scheduler::next(const Reclaim& reclaim) {
  schedule_.shares.clear();
  schedule_.dropped.clear();
  snapshot_.admits = true;
  std::size_t candidates = kFirstCandidates;
  while (true) {
    const bool all_shown = snapshot(candidates);
    const StepPlan plan = plan_step(snapshot_);
    // What is kept only because it may be of use later yields first.
    if (plan.short_of_pages && reclaim && reclaim()) continue;
    if (plan.victim) {
      Sequence& victim = *shown_[*plan.victim];
      const bool ran = victim.running;
      drop(victim);
      // A step that preempts admits nothing, unless it would then do nothing at all.
      if (ran) snapshot_.admits = running_.empty();
    } else if (plan.wants_more && !all_shown && candidates < kMostCandidates) {
      candidates *= 2;
    } else {
      carry_out(plan);
      return schedule_;
    }
  }
}

// Running sequences, the first `candidates` waiting ones beside those that keep pages, and all of these, in order.
// False: more could be shown.
bool Scheduler::snapshot(std::size_t candidates) {
  snapshot_.groups.clear();
  snapshot_.sequences.clear();
  snapshot_.pages.clear();
  shown_.clear();
  candidates_.clear();
  for (std::uint32_t g = 0; g < book_.groups(); ++g) {
    snapshot_.groups.push_back({book_.window(g), book_.counts(g).available()});
  }
  auto next = waiting_.begin();
  if (snapshot_.admits) {
    for (; next != waiting_.end() && (*next)->ready; ++next) {
      const bool known = (*next)->computed > 0;  // what it has in the cache, without a look
      if (!known && candidates-- == 0) break;
      candidates_.push_back(*next);
    }
  }
  const std::size_t ready = candidates_.size();
  if (next != waiting_.end()) candidates_.insert(candidates_.end(), keepers_.lower_bound(*next), keepers_.end());

  std::size_t shown = 0;
  const auto show_waiting = [&](const Sequence* before) {
    for (; shown < candidates_.size() && (!before || candidates_[shown]->order < before->order); ++shown) {
      show(*candidates_[shown], shown < ready);
    }
  };
  for (Sequence* sequence : running_) {
    show_waiting(sequence);
    show(*sequence, false);
  }
  show_waiting(nullptr);
  return next == waiting_.end() || !(*next)->ready;
}

void Scheduler::show(Sequence& sequence, bool ready) {
  SnapshotSequence shown{.priority = sequence.order.priority,
                         .running = sequence.running,
                         .ready = ready,
                         .keeps_pages = !sequence.running && sequence.computed > 0,
                         .shared_tail = book_.shares_tail(sequence.kv),
                         .known = sequence.tokens.size(),
                         .computed = sequence.computed,
                         .planned_length = sequence.planned_length,
                         .rows_begin = sequence.rows_begin,
                         .rows_end = sequence.rows_end};
  const std::size_t first = snapshot_.pages.size();
  snapshot_.pages.resize(first + book_.groups());
  if (sequence.running || sequence.computed > 0) {
    for (std::uint32_t g = 0; g < book_.groups(); ++g) {
      snapshot_.pages[first + g].held = book_.live_pages(sequence.kv, g);
    }
  } else {
    std::vector<kv::PrefixPages> pages(book_.groups());
    shown.computed = book_.find(sequence.kv, sequence.tokens, most_cached(sequence), pages);
    for (std::uint32_t g = 0; g < book_.groups(); ++g) snapshot_.pages[first + g] = {pages[g].held, pages[g].idle};
  }
  snapshot_.sequences.push_back(shown);
  shown_.push_back(&sequence);
}

// It gives back its pages, and its seat if it has one, and waits for its turn to be computed again. What others may
// find in the cache of its full pages, it finds too.
void Scheduler::drop(Sequence& sequence) {
  sequence.ready = false;
  schedule_.dropped.push_back(&sequence);
  const bool ran = sequence.running;
  if (ran) {
    remove(sequence);
    sequence.computed = 0;
    add(sequence);
  }
  forget(sequence);
  ++(ran ? counts_.preempted : counts_.dropped);
}

void Scheduler::seat(Sequence& sequence) {
  waiting_.erase(&sequence);
  keepers_.erase(&sequence);
  sequence.running = true;
  running_.insert(std::lower_bound(running_.begin(), running_.end(), &sequence, Earlier()), &sequence);
}

void Scheduler::carry_out(const StepPlan& plan) {
  for (const PlanItem& item : plan.items) {
    Sequence& sequence = *shown_[item.sequence];
    const bool admitted = !sequence.running;
    if (admitted) {
      seat(sequence);
      // Before any page is taken, so that what is found can't be what must make room.
      if (sequence.computed == 0) {
        sequence.computed = book_.adopt(sequence.kv, sequence.tokens, most_cached(sequence));
      }
    }
    schedule_.shares.push_back(
        {.sequence = &sequence, .tokens = item.tokens, .logits = item.logits, .admitted = admitted});
  }
  schedule_.n_decode = plan.n_decode;
  for (const Share& share : schedule_.shares) {
    if (book_.reserve(share.sequence->kv, share.tokens) != kv::Reservation::kReserved) {
      throw Error(ErrorCode::kInternal, "the KV cache has fewer pages than were planned with");
    }
  }
}

void Scheduler::commit(const Share& share) {
  Sequence& sequence = *share.sequence;
  book_.append(sequence.kv, share.tokens, sequence.tokens);
  sequence.computed += share.tokens;
  sequence.rows_begin = std::max(sequence.rows_begin, std::min(sequence.computed, sequence.rows_end));
}

void Scheduler::start_over() {
  book_.lose_contents();
  for (Sequence* sequence : running_) sequence->computed = 0;
  for (Sequence* sequence : waiting_) sequence->computed = 0;
  keepers_.clear();
}

}  // namespace backplane::sched
