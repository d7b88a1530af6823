// KvBook's prefix cache: what is known of pages beyond the sequence that filled them.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/kv/kv_book.h"

namespace backplane::kv {

// Of a prefix of so many pages, the first that a query behind it sees.
std::uint32_t KvBook::first_page(std::uint32_t pages, std::uint32_t group) const {
  return static_cast<std::uint32_t>(first_seen(std::uint64_t{pages} * page_size_, window(group)) / page_size_);
}

// One pass down the tree: a prefix will do where in every group an unbroken run of pages ends with it that begins, at
// the latest, at the first page a query behind it sees.
KvBook::Found KvBook::find(const Entry& entry, std::span<const TokenId> text, std::uint64_t most) const {
  Found found{entry.known, 0};
  if (!entry.known.valid() || entry.length > 0) return found;
  const std::uint64_t limit = std::min<std::uint64_t>(text.size(), most) / page_size_;
  PrefixId node = entry.known;
  std::vector<std::uint32_t> gap(groups_.size());  // by group: the run of pages begins here
  for (std::uint32_t pages = 1; pages <= limit; ++pages) {
    node = index_.child(node, text.subspan(std::size_t{pages - 1} * page_size_, page_size_));
    if (!node.valid()) break;
    bool whole = true, over = false;
    for (std::uint32_t g = 0; g < groups(); ++g) {
      if (!index_.page(node, g).valid()) gap[g] = pages;
      whole &= gap[g] <= first_page(pages, g);
      over |= gap[g] > 0 && window(g) == 0;
    }
    if (whole) found = {node, pages};
    if (over) break;
  }
  return found;
}

std::uint64_t KvBook::find(SequenceId sequence, std::span<const TokenId> text, std::uint64_t most,
                           std::span<PrefixPages> pages) const {
  const Found found = find(at(sequence), text, most);
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const std::uint32_t first = first_page(found.pages, g);
    pages[g] = {.held = found.pages - first, .idle = 0};
    PrefixId node = found.node;
    for (std::uint32_t m = found.pages; m > first; --m, node = index_.parent(node)) {
      pages[g].idle += groups_[g].pool.references(index_.page(node, g)) == 0;
    }
  }
  return std::uint64_t{found.pages} * page_size_;
}

std::uint64_t KvBook::adopt(SequenceId sequence, std::span<const TokenId> text, std::uint64_t most) {
  Entry& entry = at(sequence);
  if (!entry.known.valid() || entry.length > 0) return entry.length;
  const Found found = find(entry, text, most);
  for (std::uint32_t g = 0; g < groups(); ++g) {
    PageTable& table = entry.tables[g];
    table.release_from(0, groups_[g].pool);  // what a step that failed had reserved
    const std::uint32_t first = first_page(found.pages, g);
    table.start(found.pages, first);
    PrefixId node = found.node;
    for (std::uint32_t m = found.pages; m-- > first; node = index_.parent(node)) {
      groups_[g].pool.retain(index_.page(node, g));
      table.set(m, index_.page(node, g));
    }
  }
  know(entry, found.node, found.pages);
  entry.length = std::uint64_t{found.pages} * page_size_;
  prefix_counts_.queried += text.size();
  prefix_counts_.found += entry.length;
  return entry.length;
}

// Gives the pages that are full now to the prefixes that end with them, unless these have others already.
void KvBook::make_known(Entry& entry, std::span<const TokenId> text) {
  for (; entry.known_pages < entry.length / page_size_;) {
    const std::uint32_t m = entry.known_pages;
    const auto tokens = text.subspan(std::size_t{m} * page_size_, page_size_);
    PrefixId prefix = index_.add_child(entry.known, tokens);
    while (!prefix.valid() && evict_any()) prefix = index_.add_child(entry.known, tokens);
    if (!prefix.valid()) return;
    for (std::uint32_t g = 0; g < groups(); ++g) {
      if (m < entry.tables[g].first() || index_.page(prefix, g).valid()) continue;
      const PageId page = entry.tables[g].page(m);
      index_.attach(prefix, g, page);
      groups_[g].pool.set_kept(page, true);
    }
    know(entry, prefix, m + 1);
  }
}

void KvBook::know(Entry& entry, PrefixId prefix, std::uint32_t pages) {
  index_.pin(prefix);
  index_.unpin(entry.known);
  entry.known = prefix;
  entry.known_pages = pages;
}

// Requires: a page is available.
PageId KvBook::take(std::uint32_t group) {
  PagePool& pool = groups_[group].pool;
  std::optional<PageId> page = pool.take();
  if (!page && evict(group)) page = pool.take();
  return page.value();
}

void KvBook::forget(std::uint32_t group, PageId page) {
  index_.detach(group, page);
  groups_[group].pool.set_kept(page, false);
}

void KvBook::distrust(SequenceId sequence) {
  for (PrefixId node = at(sequence).known; node.valid(); node = index_.parent(node)) {
    for (std::uint32_t g = 0; g < groups(); ++g) {
      const PageId page = index_.page(node, g);
      if (page.valid()) forget(g, page);
    }
  }
}

bool KvBook::evict(std::uint32_t group) {
  const std::optional<PageId> page = groups_[group].pool.oldest_cached();
  if (!page) return false;
  forget(group, *page);
  ++prefix_counts_.evicted;
  return true;
}

bool KvBook::evict_any() {
  for (std::uint32_t g = 0; g < groups(); ++g) {
    if (evict(g)) return true;
  }
  return false;
}

void KvBook::lose_contents() {
  for (Entry& entry : entries_) {
    if (entry.open) release_all(entry);
  }
  for (std::uint32_t g = 0; g < groups(); ++g) {
    while (const std::optional<PageId> page = groups_[g].pool.oldest_cached()) forget(g, *page);
  }
}

std::string KvBook::fault() const {
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const PagePool& pool = groups_[g].pool;
    const PoolCounts counts = pool.counts();
    std::vector<std::uint32_t> references(counts.total);
    for (const Entry& entry : entries_) {
      if (!entry.open) continue;
      for (const std::int32_t page : entry.tables[g].entries()) {
        if (page >= 0) ++references[static_cast<std::size_t>(page)];
      }
      for (const PageCopy& copy : entry.copies) {
        if (copy.group == g) ++references[static_cast<std::size_t>(copy.from.value)];
      }
    }
    std::uint32_t held = 0, cached = 0;
    for (std::uint32_t p = 0; p < counts.total; ++p) {
      const PageId page{static_cast<std::int32_t>(p)};
      if (pool.references(page) != references[p]) {
        return fmt::format("group {}: page {} has {} references and {} holders", g, p, pool.references(page),
                           references[p]);
      }
      const PrefixId prefix = index_.node_of(g, page);
      if (pool.kept(page) != prefix.valid() || (prefix.valid() && index_.page(prefix, g) != page)) {
        return fmt::format("group {}: page {} and the index disagree", g, p);
      }
      held += references[p] > 0;
      cached += references[p] == 0 && pool.kept(page);
    }
    if (held != counts.held || cached != counts.cached || counts.free + cached + held != counts.total) {
      return fmt::format("group {}: {} free, {} cached and {} held pages of {}; there are {} cached and {} held", g,
                         counts.free, counts.cached, counts.held, counts.total, cached, held);
    }
  }
  return {};
}

}  // namespace backplane::kv
