// How many pages a sequence takes: the one formula, used to size pools and to admit requests.
#pragma once

#include <cstdint>

namespace backplane::kv {

// How the layers of one group see the past, and in what steps a sequence is computed.
struct Reach {
  std::uint32_t window = 0;     // tokens a query sees, its own included; 0: all
  std::uint32_t page_size = 1;  // tokens of a page
  std::uint32_t max_chunk = 1;  // the most tokens of one sequence in one step
};

// The most pages of the group that a sequence holds at any time until it is `length` tokens long. With a window the
// count stops growing: a step's first query still sees window - 1 older tokens, all older pages have been given back.
std::uint64_t pages_needed(std::uint64_t length, const Reach& reach);

// The longest sequence, at most `limit` tokens, that `pages` pages of the group can hold.
std::uint64_t longest_in(std::uint64_t pages, const Reach& reach, std::uint64_t limit);

// The first position that a query at `position` sees; older tokens are of no use to it nor to any that follows.
constexpr std::uint64_t first_seen(std::uint64_t position, std::uint32_t window) {
  return window == 0 || position < window ? 0 : position - window + 1;
}

}  // namespace backplane::kv
