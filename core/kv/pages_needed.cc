#include "core/kv/pages_needed.h"

#include <algorithm>

namespace backplane::kv {

std::uint64_t pages_needed(std::uint64_t length, const Reach& reach) {
  const std::uint64_t size = reach.page_size;
  const std::uint64_t all = length / size + (length % size != 0);
  if (reach.window == 0 || length == 0) return all;
  // The tokens alive in a step: window - 1 old ones and the chunk. They may begin anywhere in a page, at worst on its
  // last slot: that page holds one of them.
  const std::uint64_t alive = std::uint64_t{reach.window} - 1 + reach.max_chunk;
  return std::min(all, (alive - 1 + size - 1) / size + 1);
}

std::uint64_t longest_in(std::uint64_t pages, const Reach& reach, std::uint64_t limit) {
  if (pages_needed(limit, reach) <= pages) return limit;
  // Below the cap of a window the pages are those of the whole length, so the longest sequence fills them exactly.
  return pages * reach.page_size;
}

}  // namespace backplane::kv
