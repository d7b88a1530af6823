// The state of one sequence as the scheduler sees it.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "core/base/ids.h"

namespace backplane::sched {

// Who comes first: the lower priority value, then who arrived earlier; the choices of one request in their order.
struct Order {
  std::int32_t priority = 0;
  std::uint64_t arrival = 0;
  std::uint32_t choice = 0;

  auto operator<=>(const Order&) const = default;
};

// A sequence has no phase: it catches up. Each step computes some of the tokens that are known and not computed yet;
// when none would be left, the step also asks for logits, which give one more token to know.
struct Sequence {
  std::vector<TokenId> tokens;       // prompt, then what was generated
  std::uint64_t computed = 0;        // of which this many have their K and V in the cache
  std::uint64_t planned_length = 0;  // tokens that will be in the cache at most, by which pages are promised
  SequenceId kv;                     // its pages
  std::int32_t rope_row = -1;        // of the model's tables; -1: none yet

  Order order;
  // The tokens at the positions [rows_begin, rows_end) still need logits when they are computed, so they can't be taken
  // from a prefix that is in the cache. rows_begin moves as they are.
  std::uint64_t rows_begin = 0, rows_end = 0;
  bool ready = true;     // false: may not be admitted yet, nor anyone behind it
  bool running = false;  // has a seat; the scheduler's to set

  std::uint64_t pending() const { return tokens.size() - computed; }
};

}  // namespace backplane::sched
