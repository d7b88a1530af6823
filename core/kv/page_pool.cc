#include "core/kv/page_pool.h"

#include <limits>

#include "core/base/error.h"

namespace backplane::kv {

PagePool::PagePool(std::uint32_t pages) {
  if (pages > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max())) {
    throw Error(ErrorCode::kCapacity, "too many KV pages for 31-bit page numbers", {}, "use a smaller context");
  }
  references_.resize(pages);
  free_.reserve(pages);
  for (std::uint32_t page = pages; page-- > 0;) free_.emplace_back(static_cast<std::int32_t>(page));
}

std::optional<PageId> PagePool::take() {
  if (free_.empty()) return std::nullopt;
  const PageId page = free_.back();
  free_.pop_back();
  references_[static_cast<std::size_t>(page.value)] = 1;
  return page;
}

void PagePool::retain(PageId page) { ++held_references(page); }

void PagePool::release(PageId page) {
  if (--held_references(page) == 0) free_.push_back(page);
}

std::uint32_t PagePool::references(PageId page) const { return references_.at(static_cast<std::size_t>(page.value)); }

PoolCounts PagePool::counts() const {
  const auto total = static_cast<std::uint32_t>(references_.size());
  const auto free = static_cast<std::uint32_t>(free_.size());
  return {.total = total, .free = free, .cached = 0, .held = total - free};
}

std::uint32_t& PagePool::held_references(PageId page) {
  if (!page.valid() || static_cast<std::size_t>(page.value) >= references_.size() ||
      references_[static_cast<std::size_t>(page.value)] == 0) {
    throw Error(ErrorCode::kInternal, "a KV page was used that no one holds", "page " + std::to_string(page.value));
  }
  return references_[static_cast<std::size_t>(page.value)];
}

}  // namespace backplane::kv
