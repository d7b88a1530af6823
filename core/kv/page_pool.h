// The pages of one KV group: which are free, which are kept for later, and how many hold on to each of the others.
// Bookkeeping only, no bytes.
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
  std::uint32_t cached = 0;  // kept for a prefix that may return, held by no one
  std::uint32_t held = 0;    // referenced at least once

  std::uint32_t available() const { return free + cached; }  // to whoever needs a page
};

// One thread at a time. All calls take constant time.
class PagePool {
 public:
  explicit PagePool(std::uint32_t pages);

  // A free page with one reference; nothing when none is free. The page given back last is taken first, so that a small
  // load touches little memory.
  [[nodiscard]] std::optional<PageId> take();

  // Requires: the page is held or cached.
  void retain(PageId page);
  // Requires: the page is held. The last release frees it, or leaves it cached if it is to be kept.
  void release(PageId page);

  // Whether a page is to be kept when no one holds it any more. Requires: it is held or cached; a cached one that is no
  // longer kept becomes free.
  void set_kept(PageId page, bool kept);
  bool kept(PageId page) const { return pages_.at(index(page)).kept; }
  // Of the cached pages the one that was released first.
  std::optional<PageId> oldest_cached() const;

  std::uint32_t references(PageId page) const { return pages_.at(index(page)).references; }
  PoolCounts counts() const;
  // Pages with contents that somebody may still ask for: held and cached ones, ascending. Takes time for every page.
  std::vector<std::int32_t> in_use() const;

 private:
  struct Page {
    std::uint32_t references = 0;
    bool kept = false;
    std::int32_t older = -1, newer = -1;  // while cached: its neighbors in the order of release
  };

  static std::size_t index(PageId page) { return static_cast<std::size_t>(page.value); }
  bool cached(const Page& page) const { return page.kept && page.references == 0; }
  Page& used(PageId page);
  void link(PageId page);
  void unlink(PageId page);

  std::vector<Page> pages_;
  std::vector<PageId> free_;                // the last is taken next
  std::int32_t oldest_ = -1, newest_ = -1;  // cached pages
  std::uint32_t cached_ = 0;
};

}  // namespace backplane::kv
