// What the next step computes: a pure function from a snapshot to a plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace backplane::sched {

struct SnapshotGroup {
  std::uint32_t window = 0;     // 0: full attention
  std::uint32_t available = 0;  // pages that nobody holds: free, or kept only for a prefix that may return
};

struct SnapshotSequence {
  std::int32_t priority = 0;         // lower ones are served first; snapshots are in this order already
  bool running = false;              // admitted before; else waiting
  bool ready = true;                 // waiting, and may be admitted
  bool keeps_pages = false;          // waiting, but with pages of its own, of an earlier turn or of its origin
  bool shared_tail = false;          // its next token goes into a page that others use: a copy takes one page more
  std::uint64_t known = 0;           // tokens of the prompt and those generated
  std::uint64_t computed = 0;        // of which so many are in the cache, or will be when it is admitted
  std::uint64_t planned_length = 0;  // tokens that will be in the cache at most; at least `known`
  // The tokens at these positions need logits when they are computed, beside the last one.
  std::uint64_t rows_begin = 0, rows_end = 0;

  std::uint64_t pending() const { return known - computed; }
};

// Of one sequence in one group.
struct SnapshotPages {
  std::uint32_t held = 0;  // of a waiting sequence: when it is admitted
  std::uint32_t idle = 0;  // of these, pages nobody holds before that: they count as available
};

struct Snapshot {
  std::uint32_t page_size = 16;
  std::uint32_t token_budget = 0;   // tokens of a step; at least max_sequences
  std::uint32_t max_sequences = 0;  // sequences running at once
  std::uint32_t max_rows = 0;       // logits of a step; at least max_sequences
  std::uint32_t long_prompt = 0;    // a sequence with more pending tokens is long; 0: none is
  // Tokens beyond the known ones, as far as planned, for which a sequence is promised pages when it is admitted. The
  // more, the fewer are preempted and the fewer run at once; with kNever no one is preempted for pages, unless pages
  // are shared behind a window: who leaves them behind frees none.
  std::uint64_t headroom = 0;
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  bool admits = true;  // false in a step that has preempted
  std::vector<SnapshotGroup> groups;
  std::vector<SnapshotSequence> sequences;  // by priority, then in order of arrival
  std::vector<SnapshotPages> pages;         // [sequence, group]
};

struct PlanItem {
  std::size_t sequence = 0;  // index into the snapshot's sequences
  std::uint32_t tokens = 0;  // how many of its pending tokens, from the first on
  std::uint32_t rows = 0;    // logits it needs
  bool logits = false;       // they are the last known ones: their logits give a new token
  bool operator==(const PlanItem&) const = default;
};

struct StepPlan {
  // Set: there are too few pages, or seats. This sequence must give up its pages, and its seat if it runs, before there
  // can be a plan; nothing else is set but `short_of_pages`.
  std::optional<std::size_t> victim;
  std::vector<PlanItem> items;  // decodes first
  std::uint32_t n_decode = 0;   // items that compute the one token a sequence still lacks, after others in the cache
  bool short_of_pages = false;  // somebody got less than he could have used, or nothing, because pages are lacking
  bool wants_more = false;      // seats and budget are left: if more sequences wait, show them
};

// The rules, in the order in which they apply:
//
// 1. Every running sequence that lacks one token gets it.
// 2. Then prompts, and what must be computed again, running or waiting, by priority and arrival. A long one gets half
// of
//    the budget that is left when its turn comes, and at the end what nobody else has used. While one long prompt is
//    unfinished, others of its priority or behind are not admitted; short ones overtake them meanwhile. So a long
//    prompt delays short ones by a factor of two at most, and they it.
// 3. A waiting sequence is admitted when a seat is free and when in every group the pages that it may need, by
//    kv::pages_needed for its known tokens and the headroom, can be promised beside those of all running ones. But for
//    rule 2 none overtakes one that doesn't fit.
// 4. A sequence that runs and can't get the pages for a single token is given them at the cost of the last sequence
//    that waits with pages of its own, else of the last running one behind it: the newest of the lowest priority. The
//    first one can always go on. The last one, if it lacks a page, waits for it with those it has.
// 5. A waiting sequence that doesn't fit takes the seat and the pages of the last running one of lower priority; when
//    nobody runs, the pages of others that wait.
// 6. A step that preempts admits nothing.
//
// The caller takes away what a victim has and plans again; each time there is one less, so this ends. Then something is
// planned, or there are no sequences, provided that each one's planned length fits an empty pool. (Without rule 6 in
// force, that is: if the last running sequence was preempted for the first waiting one, the caller may admit.)
StepPlan plan_step(const Snapshot& snapshot);

}  // namespace backplane::sched
