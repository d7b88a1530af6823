#include "core/kv/page_table.h"

#include <algorithm>
#include <utility>

namespace backplane::kv {

void PageTable::start(std::uint32_t size, std::uint32_t first) {
  entries_.assign(size, -1);
  first_ = first;
}

PageId PageTable::set(std::uint32_t m, PageId page) { return PageId{std::exchange(entries_[m], page.value)}; }

PageTable PageTable::share(PagePool& pool) const {
  for (std::uint32_t m = first_; m < size(); ++m) pool.retain(page(m));
  return *this;
}

void PageTable::release_before(std::uint32_t m, PagePool& pool) {
  for (const std::uint32_t end = std::min(m, size()); first_ < end; ++first_) {
    pool.release(PageId{entries_[first_]});
    entries_[first_] = -1;
  }
}

void PageTable::release_from(std::uint32_t m, PagePool& pool) {
  while (size() > std::max(m, first_)) {
    pool.release(PageId{entries_.back()});
    entries_.pop_back();
  }
  if (m >= size()) return;
  entries_.resize(m);  // what is left beyond m had been given back before
  first_ = m;
}

}  // namespace backplane::kv
