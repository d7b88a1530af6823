// What the next step computes: a pure function from a snapshot to a plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace backplane::sched {

struct SnapshotGroup {
  std::uint32_t window = 0;      // 0: full attention
  std::uint32_t free_pages = 0;  // held by no sequence of the snapshot or elsewhere
};

struct SnapshotSequence {
  std::uint64_t known = 0;           // tokens of the prompt and those generated
  std::uint64_t computed = 0;        // of which so many are in the cache
  std::uint64_t planned_length = 0;  // tokens that will be in the cache at most; at least `known`
  bool running = false;              // admitted before; else waiting
  std::vector<std::uint32_t> held;   // pages it holds, by group; a waiting sequence may hold some, of an earlier turn
};

struct Snapshot {
  std::uint32_t page_size = 16;
  std::uint32_t token_budget = 0;   // tokens of a step
  std::uint32_t max_sequences = 0;  // sequences running at once
  std::vector<SnapshotGroup> groups;
  std::vector<SnapshotSequence> sequences;  // in order of arrival
};

struct PlanItem {
  std::size_t sequence = 0;  // index into the snapshot's sequences
  std::uint32_t tokens = 0;  // how many of its known, uncomputed tokens, from the first on
  bool logits = false;       // they are the last known ones: their logits give a new token
  bool operator==(const PlanItem&) const = default;
};

struct StepPlan {
  std::vector<PlanItem> items;  // decodes first
  std::uint32_t n_decode = 0;   // items that compute the one token a running sequence still lacks
  bool starved = false;         // there was a seat and budget for a waiting sequence, but too few pages
};

// Decodes first, then prompt chunks up to the token budget, all in order of arrival; then waiting sequences are
// admitted, first come first served: none overtakes one that does not fit. A sequence is admitted when the pages of its
// planned length can be promised beside what running ones have been promised, so no running sequence ever runs dry.
// A waiting sequence whose planned length fits an empty pool is admitted, at the latest, when all others are gone.
StepPlan plan_step(const Snapshot& snapshot);

}  // namespace backplane::sched
