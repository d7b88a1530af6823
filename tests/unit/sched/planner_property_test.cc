// Random snapshots of pools with few pages: what must hold for every plan, worked out again by other means.
// BACKPLANE_SNAPSHOTS says how many (default: a million).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "core/kv/pages_needed.h"
#include "core/sched/planner.h"

namespace backplane::sched {
namespace {

// splitmix64: fast, and the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint32_t below(std::uint32_t n) {
    std::uint64_t x = state_ += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return static_cast<std::uint32_t>((x ^ (x >> 31)) >> 33) % n;
  }
  bool one_in(std::uint32_t n) { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

std::uint32_t pages_for(std::uint64_t tokens, std::uint32_t page) {
  std::uint32_t pages = 0;
  while (std::uint64_t{pages} * page < tokens) ++pages;
  return pages;
}

// Pages that a sequence with so many tokens has in a group: those its next token sees.
std::uint32_t live_pages(std::uint64_t tokens, std::uint32_t window, std::uint32_t page) {
  return pages_for(tokens, page) - static_cast<std::uint32_t>(kv::first_seen(tokens, window) / page);
}

SnapshotSequence random_sequence(Random& random, std::uint32_t longest, bool running) {
  SnapshotSequence s;
  s.running = running;
  s.planned_length = 1 + random.below(longest);
  s.known = 1 + random.below(static_cast<std::uint32_t>(s.planned_length));
  const bool decodes = running && random.one_in(2);
  s.computed = decodes ? s.known - 1 : random.below(static_cast<std::uint32_t>(s.known));
  if (random.one_in(8)) s.rows_end = random.below(static_cast<std::uint32_t>(s.known));
  if (random.one_in(2)) s.rows_begin = random.below(static_cast<std::uint32_t>(s.rows_end) + 1);
  return s;
}

// As the scheduler could make it, but that nothing says how these sequences came to be together.
Snapshot random_snapshot(Random& random) {
  Snapshot s;
  s.page_size = 1 + random.below(4);
  s.max_sequences = 1 + random.below(6);
  s.token_budget = s.max_sequences + random.below(10);
  s.max_rows = s.max_sequences + random.below(6);
  s.long_prompt = random.one_in(3) ? 0 : 1 + random.below(s.token_budget);
  s.headroom = random.one_in(5) ? Snapshot::kNever : random.below(10);
  s.admits = !random.one_in(6);
  const std::uint32_t groups = 1 + random.below(3);
  std::uint32_t longest = 24;
  for (std::uint32_t g = 0; g < groups; ++g) {
    s.groups.push_back({random.one_in(2) ? 0 : 1 + random.below(7), 1 + random.below(9)});
    longest = static_cast<std::uint32_t>(
        kv::longest_in(s.groups[g].available, {s.groups[g].window, s.page_size, s.token_budget}, longest));
  }
  if (longest == 0) return s;
  std::int32_t priority = 0;
  std::uint32_t running = 0;
  bool ready = true;
  for (std::uint32_t i = random.below(9); i > 0; --i) {
    SnapshotSequence sequence = random_sequence(random, longest, running < s.max_sequences && random.one_in(2));
    std::vector<SnapshotPages> pages(groups);
    bool fits = true;
    const bool hit = !sequence.running && random.one_in(2);
    if (hit) sequence.computed -= sequence.computed % s.page_size;
    sequence.shared_tail = !hit && sequence.computed % s.page_size != 0 && random.one_in(5);
    for (std::uint32_t g = 0; g < groups; ++g) {
      pages[g].held = live_pages(sequence.computed, s.groups[g].window, s.page_size);
      if (hit) pages[g].idle = random.below(std::min(pages[g].held, s.groups[g].available) + 1);
      fits &= hit || pages[g].held <= s.groups[g].available;
    }
    if (!fits) continue;
    if (!hit) {
      for (std::uint32_t g = 0; g < groups; ++g) s.groups[g].available -= pages[g].held;
    }
    ready &= !random.one_in(9);
    sequence.keeps_pages = !sequence.running && !hit && sequence.computed > 0;
    sequence.ready = !sequence.running && ready;
    sequence.priority = priority += random.one_in(3);
    running += sequence.running;
    s.sequences.push_back(sequence);
    s.pages.insert(s.pages.end(), pages.begin(), pages.end());
  }
  // Who shares a page does so with somebody.
  std::size_t with_pages = 0;
  for (const SnapshotSequence& sequence : s.sequences) {
    with_pages += sequence.computed > 0 && (sequence.running || sequence.keeps_pages);
  }
  for (SnapshotSequence& sequence : s.sequences) sequence.shared_tail &= with_pages > 1;
  return s;
}

class Checker {
 public:
  Checker(const Snapshot& snapshot, const StepPlan& plan) : s_(snapshot), plan_(plan), tokens_(s_.sequences.size()) {
    for (const PlanItem& item : plan.items) tokens_.at(item.sequence) += item.tokens;
  }

  std::string check() {
    if (plan_.victim) return check_victim();
    std::string wrong = check_items();
    if (wrong.empty()) wrong = check_pages();
    if (wrong.empty()) wrong = check_admission();
    if (wrong.empty()) wrong = check_decodes();
    if (wrong.empty()) wrong = check_diligence();
    return wrong;
  }

 private:
  const SnapshotSequence& at(std::size_t i) const { return s_.sequences[i]; }
  const SnapshotPages& pages(std::size_t i, std::size_t g) const { return s_.pages[i * s_.groups.size() + g]; }
  bool decodes(std::size_t i) const { return at(i).computed > 0 && at(i).pending() == 1; }
  bool is_long(std::size_t i) const { return s_.long_prompt > 0 && at(i).pending() > s_.long_prompt; }
  bool admitted(std::size_t i) const { return !at(i).running && tokens_[i] > 0; }
  bool has_pages(std::size_t i) const {
    for (std::size_t g = 0; g < s_.groups.size(); ++g) {
      if (pages(i, g).held > 0) return true;
    }
    return false;
  }
  // One that runs, or is admitted before i, and of no lower rank.
  bool long_under_way(std::size_t i) const {
    for (std::size_t j = 0; j < count(); ++j) {
      const bool before = at(j).running || (j < i && admitted(j));
      if (before && is_long(j) && at(j).priority <= at(i).priority) return true;
    }
    return false;
  }
  std::size_t count() const { return tokens_.size(); }

  std::string check_items() {
    std::uint64_t tokens = 0, rows = 0;
    for (std::size_t k = 0; k < plan_.items.size(); ++k) {
      const PlanItem& item = plan_.items[k];
      const SnapshotSequence& s = at(item.sequence);
      if (item.tokens == 0 || item.tokens > s.pending()) return "tokens that aren't there";
      if (tokens_[item.sequence] != item.tokens) return "a sequence twice";
      if (item.logits != (item.tokens == s.pending())) return "logits at the wrong time";
      std::uint32_t wanted = 0;
      for (std::uint64_t p = s.computed; p < s.computed + item.tokens; ++p) {
        wanted += (p >= s.rows_begin && p < s.rows_end) || p + 1 == s.known;
      }
      if (item.rows != wanted) return "wrong rows";
      if (decodes(item.sequence) != (k < plan_.n_decode)) return "decodes are not first";
      if (k > 0 && k != plan_.n_decode && plan_.items[k - 1].sequence > item.sequence) return "out of order";
      tokens += item.tokens;
      rows += item.rows;
    }
    if (tokens > s_.token_budget) return "over budget";
    if (rows > s_.max_rows) return "too many rows";
    return {};
  }

  // What the step takes is there, and where somebody is admitted all that is promised is too.
  std::string check_pages() {
    for (std::size_t g = 0; g < s_.groups.size(); ++g) {
      std::int64_t left = s_.groups[g].available, unpromised = left;
      bool admits = false;
      for (std::size_t i = 0; i < count(); ++i) {
        const SnapshotSequence& s = at(i);
        if (tokens_[i] > 0) {
          left -=
              pages_for(s.computed + tokens_[i], s_.page_size) - pages_for(s.computed, s_.page_size) + s.shared_tail;
        }
        if (admitted(i)) left -= pages(i, g).idle;
        if (!s.running && !admitted(i)) continue;
        admits |= admitted(i);
        std::uint64_t target = s.known;
        while (target < s.planned_length && target - s.known < s_.headroom) ++target;
        const auto most =
            static_cast<std::int64_t>(kv::pages_needed(target, {s_.groups[g].window, s_.page_size, s_.token_budget}));
        unpromised -= std::max<std::int64_t>(0, most - pages(i, g).held) + s.shared_tail;
        if (admitted(i)) unpromised -= pages(i, g).idle;
      }
      if (left < 0) return "pages that aren't there";
      if (admits && unpromised < 0) return "pages promised twice";
    }
    return {};
  }

  std::string check_admission() {
    std::uint32_t seats = 0;
    bool closed = !s_.admits;
    for (std::size_t i = 0; i < count(); ++i) seats += at(i).running || admitted(i);
    if (seats > s_.max_sequences) return "too many seats";
    for (std::size_t i = 0; i < count(); ++i) {
      if (at(i).running) continue;
      if (admitted(i)) {
        if (closed) return "one overtakes another that doesn't fit, or is admitted when nobody should be";
        if (!at(i).ready) return "one is admitted that isn't ready";
        if (is_long(i) && long_under_way(i)) return "a second long prompt";
      } else if (!(is_long(i) && long_under_way(i))) {
        closed = true;
      }
    }
    return {};
  }

  // Who lacks one token gets it, or there is no page and nobody behind it that has any.
  std::string check_decodes() {
    for (std::size_t i = 0; i < count(); ++i) {
      if (!at(i).running || at(i).pending() != 1 || tokens_[i] > 0) continue;
      if (!plan_.short_of_pages) return "a decode gets nothing";
      for (std::size_t v = 0; v < count(); ++v) {
        if (at(v).keeps_pages && !at(v).running) return "one that waits keeps pages a decode needs";
        if (v > i && at(v).running && has_pages(v)) return "a later one keeps pages a decode needs";
      }
    }
    return {};
  }

  // Nothing is left undone without a reason.
  std::string check_diligence() {
    std::uint64_t budget = s_.token_budget, rows = s_.max_rows;
    std::uint32_t running = 0;
    for (const PlanItem& item : plan_.items) budget -= item.tokens, rows -= item.rows;
    for (std::size_t i = 0; i < count(); ++i) running += at(i).running;
    if (running > 0 && plan_.items.empty()) return "nobody goes on";
    if (budget == 0 || plan_.short_of_pages) return {};
    bool open = s_.admits;
    for (std::size_t i = 0; i < count(); ++i) {
      const bool rows_lack = rows == 0;
      if (at(i).running && tokens_[i] < at(i).pending() && !rows_lack) return "budget is left and a prompt waits";
      open &= at(i).running || admitted(i) || (is_long(i) && !admitted(i)) || !at(i).ready;
    }
    if (running == 0 && s_.admits && plan_.items.empty() && count() > 0 && at(0).ready) return "nobody begins";
    if (!open && running < s_.max_sequences && s_.admits && rows > 0) {
      std::uint32_t seats = running;
      for (std::size_t i = 0; i < count(); ++i) seats += admitted(i);
      if (seats < s_.max_sequences) return "a seat is left and a short one waits";
    }
    return {};
  }

  std::string check_victim() {
    const std::size_t v = *plan_.victim;
    if (v >= count() || !plan_.items.empty() || !plan_.short_of_pages) return "a strange victim";
    if (!at(v).running) return at(v).keeps_pages ? "" : "a victim that has nothing";
    // It is the last one that has pages, and somebody before it lacks one; or somebody of a better priority is to have
    // its seat, and then it is the last one that runs.
    bool last = true, last_with_pages = true, better_waits = false, earlier_runs = false;
    for (std::size_t i = 0; i < count(); ++i) {
      if (i > v && at(i).running) last = false, last_with_pages &= !has_pages(i);
      better_waits |= i < v && !at(i).running && at(i).ready && at(i).priority < at(v).priority;
      earlier_runs |= i < v && at(i).running;
    }
    if (earlier_runs && last_with_pages && has_pages(v)) return {};
    if (s_.admits && better_waits && last) return {};
    return "a victim that should not be one";
  }

  const Snapshot& s_;
  const StepPlan& plan_;
  std::vector<std::uint32_t> tokens_;
};

std::string describe(const Snapshot& s, const StepPlan& plan) {
  std::string out = fmt::format("page {}, budget {}, seats {}, rows {}, long {}, headroom {}, admits {}\n", s.page_size,
                                s.token_budget, s.max_sequences, s.max_rows, s.long_prompt, s.headroom, s.admits);
  for (const auto& g : s.groups) out += fmt::format("  window {}: {}\n", g.window, g.available);
  for (std::size_t i = 0; i < s.sequences.size(); ++i) {
    const SnapshotSequence& q = s.sequences[i];
    out += fmt::format("  {}{}{} priority {}, {}/{}/{}, rows {}-{}, pages",
                       q.running ? "runs"
                       : q.ready ? "waits"
                                 : "later",
                       q.keeps_pages ? " keeps" : "", q.shared_tail ? " shares" : "", q.priority, q.computed, q.known,
                       q.planned_length, q.rows_begin, q.rows_end);
    for (std::size_t g = 0; g < s.groups.size(); ++g) {
      const SnapshotPages& p = s.pages[i * s.groups.size() + g];
      out += fmt::format(" {}({})", p.held, p.idle);
    }
    out += '\n';
  }
  if (plan.victim) out += fmt::format("victim {}\n", *plan.victim);
  for (const PlanItem& item : plan.items) {
    out += fmt::format("{}: {} tokens, {} rows\n", item.sequence, item.tokens, item.rows);
  }
  return out;
}

TEST(PlannerProperty, HoldsForRandomSnapshots) {
  const char* wanted = std::getenv("BACKPLANE_SNAPSHOTS");
  const std::uint64_t snapshots = wanted ? std::strtoull(wanted, nullptr, 10) : 1000000;
  std::map<std::string, std::uint64_t> seen;
  Random random(1);
  for (std::uint64_t n = 0; n < snapshots; ++n) {
    const Snapshot snapshot = random_snapshot(random);
    const StepPlan plan = plan_step(snapshot);
    const std::string wrong = Checker(snapshot, plan).check();
    ASSERT_EQ(wrong, "") << "snapshot " << n << "\n" << describe(snapshot, plan);
    const StepPlan again = plan_step(snapshot);
    ASSERT_TRUE(again.items == plan.items && again.victim == plan.victim) << "not a function";
    seen["victim that runs"] += plan.victim && snapshot.sequences[*plan.victim].running;
    seen["victim that waits"] += plan.victim && !snapshot.sequences[*plan.victim].running;
    seen["decodes and prompts"] += plan.n_decode > 0 && plan.n_decode < plan.items.size();
    seen["short of pages"] += plan.short_of_pages && !plan.victim;
    for (const PlanItem& item : plan.items) seen["admitted"] += !snapshot.sequences[item.sequence].running;
  }
  if (snapshots < 100000) return;
  for (const auto& [what, times] : seen) EXPECT_GT(times, snapshots / 100) << what;
  EXPECT_EQ(seen.size(), 5u);
}

}  // namespace
}  // namespace backplane::sched
