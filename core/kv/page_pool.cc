#include "core/kv/page_pool.h"

#include <limits>
#include <string>

#include "core/base/error.h"

namespace backplane::kv {

PagePool::PagePool(std::uint32_t pages) {
  if (pages > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max())) {
    throw Error(ErrorCode::kCapacity, "too many KV pages for 31-bit page numbers", {}, "use a smaller context");
  }
  pages_.resize(pages);
  free_.reserve(pages);
  for (std::uint32_t page = pages; page-- > 0;) free_.emplace_back(static_cast<std::int32_t>(page));
}

std::optional<PageId> PagePool::take() {
  if (free_.empty()) return std::nullopt;
  const PageId page = free_.back();
  free_.pop_back();
  pages_[index(page)].references = 1;
  return page;
}

void PagePool::retain(PageId page) {
  Page& at = used(page);
  if (at.references == 0) unlink(page);
  ++at.references;
}

void PagePool::release(PageId page) {
  Page& at = used(page);
  if (at.references == 0) throw Error(ErrorCode::kInternal, "a KV page is given back that no one holds");
  if (--at.references > 0) return;
  if (at.kept) {
    link(page);
  } else {
    free_.push_back(page);
  }
}

void PagePool::set_kept(PageId page, bool kept) {
  Page& at = used(page);
  if (cached(at) && !kept) {
    unlink(page);
    free_.push_back(page);
  }
  at.kept = kept;
}

std::optional<PageId> PagePool::oldest_cached() const {
  if (oldest_ < 0) return std::nullopt;
  return PageId{oldest_};
}

PoolCounts PagePool::counts() const {
  const auto total = static_cast<std::uint32_t>(pages_.size());
  const auto free = static_cast<std::uint32_t>(free_.size());
  return {.total = total, .free = free, .cached = cached_, .held = total - free - cached_};
}

std::vector<std::int32_t> PagePool::in_use() const {
  std::vector<std::int32_t> pages;
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    if (pages_[i].references > 0 || pages_[i].kept) pages.push_back(static_cast<std::int32_t>(i));
  }
  return pages;
}

PagePool::Page& PagePool::used(PageId page) {
  if (!page.valid() || index(page) >= pages_.size() ||
      (pages_[index(page)].references == 0 && !pages_[index(page)].kept)) {
    throw Error(ErrorCode::kInternal, "a KV page was used that no one holds", "page " + std::to_string(page.value));
  }
  return pages_[index(page)];
}

void PagePool::link(PageId page) {
  Page& at = pages_[index(page)];
  at.older = newest_;
  at.newer = -1;
  (newest_ < 0 ? oldest_ : pages_[static_cast<std::size_t>(newest_)].newer) = page.value;
  newest_ = page.value;
  ++cached_;
}

void PagePool::unlink(PageId page) {
  const Page& at = pages_[index(page)];
  (at.older < 0 ? oldest_ : pages_[static_cast<std::size_t>(at.older)].newer) = at.newer;
  (at.newer < 0 ? newest_ : pages_[static_cast<std::size_t>(at.newer)].older) = at.older;
  --cached_;
}

}  // namespace backplane::kv
