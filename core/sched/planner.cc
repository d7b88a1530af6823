#include "core/sched/planner.h"

#include <algorithm>

#include "core/kv/pages_needed.h"

namespace backplane::sched {
namespace {

enum class Admission : std::uint8_t { kAdmitted, kNoRoom, kVictim };

// A plan in the making: what each sequence gets, and what is left.
class Draft {
 public:
  explicit Draft(const Snapshot& snapshot)
      : snapshot_(snapshot),
        tokens_(snapshot.sequences.size()),
        budget_(snapshot.token_budget),
        rows_(snapshot.max_rows) {
    for (const SnapshotGroup& group : snapshot.groups) spare_.push_back(group.available);
    for (const SnapshotSequence& sequence : snapshot.sequences) {
      seats_ += sequence.running;
      if (sequence.running) note_long(sequence);
    }
  }

  bool is_long(const SnapshotSequence& sequence) const {
    return snapshot_.long_prompt > 0 && sequence.pending() > snapshot_.long_prompt;
  }
  // Whether a long one of no lower rank is under way.
  bool passes_over(const SnapshotSequence& sequence) const {
    return is_long(sequence) && sequence.priority >= long_priority_;
  }
  bool exhausted() const { return budget_ == 0; }
  bool runs(std::size_t i) const { return sequence(i).running || tokens_[i] > 0; }
  // A long sequence's share at its turn.
  std::uint32_t share(const SnapshotSequence& sequence) const {
    return is_long(sequence) ? std::max(1u, budget_ / 2) : budget_;
  }

  // Gives a running sequence up to `most` more tokens; false: not a single one, for lack of pages.
  bool give(std::size_t i, std::uint32_t most);
  // True when a victim was found. Otherwise the sequence has to wait.
  bool find_victim(std::size_t i);
  Admission admit(std::size_t i);
  bool seat_is_free() const { return seats_ < snapshot_.max_sequences; }
  StepPlan finish(bool wants_more);

 private:
  void note_long(const SnapshotSequence& sequence) {
    if (is_long(sequence)) long_priority_ = std::min<std::int64_t>(long_priority_, sequence.priority);
  }
  const SnapshotSequence& sequence(std::size_t i) const { return snapshot_.sequences[i]; }
  std::int64_t pages(std::uint64_t tokens) const {
    return static_cast<std::int64_t>((tokens + snapshot_.page_size - 1) / snapshot_.page_size);
  }
  const SnapshotPages& held(std::size_t i, std::size_t g) const {
    return snapshot_.pages[i * snapshot_.groups.size() + g];
  }
  std::int64_t promised(std::size_t i, std::size_t g) const;
  void promise_to_running();
  std::uint32_t fitting(std::size_t i) const;
  std::uint32_t rows_of(const SnapshotSequence& s, std::uint64_t from, std::uint32_t tokens) const;
  bool outrank(std::size_t i);

  const Snapshot& snapshot_;
  StepPlan plan_;
  std::vector<std::uint32_t> tokens_;     // by sequence
  std::vector<std::int64_t> spare_;       // pages of each group that this step has not used
  std::vector<std::int64_t> unpromised_;  // of these, such as are promised to no one; empty: not reckoned yet
  std::uint32_t budget_, rows_, seats_ = 0;
  std::int64_t long_priority_ = std::numeric_limits<std::int64_t>::max();  // the best of long ones under way
};

// How many tokens the sequence could have with the spare pages.
std::uint32_t Draft::fitting(std::size_t i) const {
  const SnapshotSequence& s = sequence(i);
  const std::uint64_t begin = s.computed + tokens_[i];
  const bool copy = s.shared_tail && tokens_[i] == 0;
  std::int64_t spare = *std::min_element(spare_.begin(), spare_.end()) - (copy ? 1 : 0);
  if (spare < 0) return 0;
  const std::uint64_t end = static_cast<std::uint64_t>(pages(begin) + spare) * snapshot_.page_size;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(end - begin, std::numeric_limits<std::uint32_t>::max()));
}

// Rows for the tokens [from, from + tokens) of a sequence.
std::uint32_t Draft::rows_of(const SnapshotSequence& s, std::uint64_t from, std::uint32_t tokens) const {
  const std::uint64_t end = from + tokens;
  const std::uint64_t begin = std::max(from, s.rows_begin), stop = std::min(end, s.rows_end);
  const std::uint64_t inside = stop > begin ? stop - begin : 0;
  return static_cast<std::uint32_t>(inside) + (end == s.known && s.rows_end < end ? 1 : 0);
}

bool Draft::give(std::size_t i, std::uint32_t most) {
  const SnapshotSequence& s = sequence(i);
  const std::uint64_t from = s.computed + tokens_[i];
  const std::uint32_t wanted = static_cast<std::uint32_t>(std::min<std::uint64_t>({s.known - from, most, budget_}));
  std::uint32_t tokens = std::min(wanted, fitting(i));
  if (wanted == 0) return true;
  if (tokens < wanted) plan_.short_of_pages = true;
  if (tokens == 0) return false;
  while (tokens > 0 && rows_of(s, from, tokens) > rows_) --tokens;
  if (tokens == 0) return true;
  const std::int64_t more = pages(from + tokens) - pages(from) + (s.shared_tail && tokens_[i] == 0 ? 1 : 0);
  for (std::int64_t& spare : spare_) spare -= more;
  rows_ -= rows_of(s, from, tokens);
  budget_ -= tokens;
  tokens_[i] += tokens;
  return true;
}

bool Draft::find_victim(std::size_t i) {
  const std::size_t count = snapshot_.sequences.size();
  for (std::size_t v = count; v-- > 0;) {
    if (v != i && sequence(v).keeps_pages && !sequence(v).running && tokens_[v] == 0) {
      plan_.victim = v;
      return true;
    }
  }
  for (std::size_t v = count; v-- > i + 1;) {
    if (!sequence(v).running || !sequence(i).running) continue;
    for (std::size_t g = 0; g < spare_.size(); ++g) {
      if (held(v, g).held == 0) continue;
      plan_.victim = v;
      return true;
    }
  }
  return false;
}

// The last running sequence of a lower priority.
bool Draft::outrank(std::size_t i) {
  for (std::size_t v = snapshot_.sequences.size(); v-- > i + 1;) {
    if (!sequence(v).running) continue;
    if (sequence(v).priority > sequence(i).priority) plan_.victim = v;
    break;
  }
  return plan_.victim.has_value();
}

// Pages of group g that the sequence may still take: the formula by which pools are sized and requests refused.
std::int64_t Draft::promised(std::size_t i, std::size_t g) const {
  const SnapshotSequence& s = sequence(i);
  const kv::Reach reach{snapshot_.groups[g].window, snapshot_.page_size, snapshot_.token_budget};
  const std::uint64_t ahead = std::min(s.planned_length - s.known, snapshot_.headroom);
  const auto needed = static_cast<std::int64_t>(kv::pages_needed(s.known + ahead, reach));
  return std::max<std::int64_t>(0, needed - held(i, g).held) + (s.shared_tail ? 1 : 0);
}

void Draft::promise_to_running() {
  if (!unpromised_.empty()) return;
  for (std::size_t g = 0; g < spare_.size(); ++g) {
    unpromised_.push_back(snapshot_.groups[g].available);
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (sequence(i).running) unpromised_[g] -= promised(i, g);
    }
  }
}

Admission Draft::admit(std::size_t i) {
  if (rows_of(sequence(i), sequence(i).computed, 1) > rows_) return Admission::kNoRoom;
  bool fits = seat_is_free();
  promise_to_running();
  for (std::size_t g = 0; fits && g < spare_.size(); ++g) {
    if (promised(i, g) + held(i, g).idle > unpromised_[g]) {
      fits = false;
      plan_.short_of_pages = true;
    }
  }
  if (!fits) {
    if (seats_ == 0 ? find_victim(i) : outrank(i)) return Admission::kVictim;
    return Admission::kNoRoom;
  }
  for (std::size_t g = 0; g < spare_.size(); ++g) {
    unpromised_[g] -= promised(i, g) + held(i, g).idle;
    spare_[g] -= held(i, g).idle;
  }
  ++seats_;
  note_long(sequence(i));
  give(i, share(sequence(i)));
  return Admission::kAdmitted;
}

StepPlan Draft::finish(bool wants_more) {
  if (plan_.victim) {
    plan_.short_of_pages = true;
    return std::move(plan_);
  }
  plan_.wants_more = wants_more && !exhausted() && seat_is_free();
  const auto add = [&](bool decodes) {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const SnapshotSequence& s = sequence(i);
      if (tokens_[i] == 0 || (s.computed > 0 && s.pending() == 1) != decodes) continue;
      plan_.items.push_back({.sequence = i,
                             .tokens = tokens_[i],
                             .rows = rows_of(s, s.computed, tokens_[i]),
                             .logits = tokens_[i] == s.pending()});
    }
  };
  plan_.items.reserve(tokens_.size());
  add(true);
  plan_.n_decode = static_cast<std::uint32_t>(plan_.items.size());
  add(false);
  return std::move(plan_);
}

}  // namespace

StepPlan plan_step(const Snapshot& snapshot) {
  Draft draft(snapshot);
  const auto& sequences = snapshot.sequences;
  const std::size_t count = sequences.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (!sequences[i].running || sequences[i].pending() != 1) continue;
    if (!draft.give(i, 1) && draft.find_victim(i)) return draft.finish(false);
  }
  bool admits = snapshot.admits;
  for (std::size_t i = 0; i < count && !draft.exhausted(); ++i) {
    const SnapshotSequence& s = sequences[i];
    if (s.running) {
      if (s.pending() > 1 && !draft.give(i, draft.share(s)) && draft.find_victim(i)) return draft.finish(false);
    } else if (s.ready && admits && !draft.passes_over(s)) {
      const Admission admission = draft.admit(i);
      if (admission == Admission::kVictim) return draft.finish(false);
      admits = admission == Admission::kAdmitted;
    }
  }
  // What is left goes to long prompts, the first one first.
  for (std::size_t i = 0; i < count && !draft.exhausted(); ++i) {
    if (draft.is_long(sequences[i]) && draft.runs(i)) draft.give(i, snapshot.token_budget);
  }
  return draft.finish(admits);
}

}  // namespace backplane::sched
