// The pages of one sequence in one group, in the order of its tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/kv/page_pool.h"

namespace backplane::kv {

// Entry m is the page of tokens [m * page_size, (m + 1) * page_size). Entries before first() have been given back
// because the window has passed, or were never had, and are -1; all others hold a page. The table holds one reference
// to each of its pages and gives it back only through release_before and release_from.
class PageTable {
 public:
  std::span<const std::int32_t> entries() const { return entries_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(entries_.size()); }
  std::uint32_t first() const { return first_; }
  std::uint32_t live() const { return size() - first_; }
  PageId page(std::uint32_t m) const { return PageId{entries_[m]}; }

  // Takes over the caller's reference.
  void append(PageId page) { entries_.push_back(page.value); }
  // Makes the empty table one of `size` entries, of which those before `first` are -1; the caller then sets the others.
  void start(std::uint32_t size, std::uint32_t first);
  // Takes over the caller's reference, and gives it that to the page before.
  PageId set(std::uint32_t m, PageId page);
  // A table of the same pages, with references of its own.
  PageTable share(PagePool& pool) const;

  // Gives back the pages of the entries before `m`, which become -1.
  void release_before(std::uint32_t m, PagePool& pool);
  // Gives back the pages from entry `m` on, the last first, and forgets the entries. An empty table may grow again from
  // 0.
  void release_from(std::uint32_t m, PagePool& pool);

 private:
  std::vector<std::int32_t> entries_;
  std::uint32_t first_ = 0;
};

}  // namespace backplane::kv
