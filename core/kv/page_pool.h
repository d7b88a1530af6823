// The pages of one KV group: which are free, and how many hold on to each of the others. Bookkeeping only, no bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/ids.h"

namespace backplane::kv {

// free + cached + held == total, always.
struct PoolCounts {
  std::uint32_t total = 0;
  std::uint32_t free = 0;
  std::uint32_t cached = 0;  // kept for a prefix that may return, held by no one; no page is, so far
  std::uint32_t held = 0;    // referenced at least once
};

// One thread at a time. All calls take constant time.
class PagePool {
 public:
  explicit PagePool(std::uint32_t pages);

  // A page with one reference; nothing when all are held. The page given back last is taken first, so that a small
  // load touches little memory.
  [[nodiscard]] std::optional<PageId> take();

  // Requires: the page is held.
  void retain(PageId page);
  // Requires: the page is held. The last release frees it.
  void release(PageId page);

  std::uint32_t references(PageId page) const;
  PoolCounts counts() const;

 private:
  std::uint32_t& held_references(PageId page);

  std::vector<std::uint32_t> references_;  // by page
  std::vector<PageId> free_;               // the last is taken next
};

}  // namespace backplane::kv
