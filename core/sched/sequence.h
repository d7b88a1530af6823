// The state of one request as the scheduler sees it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/ids.h"

namespace backplane::sched {

// A sequence has no phase: it catches up. Each step computes some of the tokens that are known and not computed yet;
// when none would be left, the step also asks for logits, which give one more token to know.
struct Sequence {
  std::vector<TokenId> tokens;       // prompt, then what was generated
  std::uint64_t computed = 0;        // of which this many have their K and V in the cache
  std::uint64_t planned_length = 0;  // tokens that will be in the cache at most, by which pages are promised
  SequenceId kv;                     // its pages
  std::int32_t rope_row = -1;        // of the model's tables; -1: none yet

  std::uint64_t pending() const { return tokens.size() - computed; }
};

}  // namespace backplane::sched
