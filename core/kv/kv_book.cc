// What a sequence holds. What outlives it is in kv_prefix.cc.
#include "core/kv/kv_book.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/error.h"

namespace backplane::kv {
namespace {

void require(bool condition, const char* what) {
  if (!condition) throw Error(ErrorCode::kInternal, what, "KV bookkeeping");
}

std::vector<std::uint32_t> pages_of(const std::vector<GroupConfig>& groups) {
  std::vector<std::uint32_t> pages;
  for (const GroupConfig& group : groups) pages.push_back(group.pages);
  return pages;
}

// Each page of the deepest group has a node. Behind windows, prefixes also have nodes whose pages are gone already: for
// these there is room three times over.
std::size_t most_nodes(const std::vector<GroupConfig>& groups) {
  std::size_t pages = 0;
  for (const GroupConfig& group : groups) pages += group.pages;
  return 4 * pages + 64;
}

}  // namespace

KvBook::KvBook(std::uint32_t page_size, std::vector<GroupConfig> groups, std::uint32_t max_chunk, PrefixHash hash)
    : page_size_(page_size), max_chunk_(max_chunk), index_(page_size, pages_of(groups), most_nodes(groups), hash) {
  require(page_size > 0 && max_chunk > 0 && !groups.empty(), "page size, step size and groups must not be empty");
  groups_.reserve(groups.size());
  for (const GroupConfig& config : groups) groups_.push_back({config, PagePool(config.pages)});
}

SequenceId KvBook::open() {
  if (unused_ids_.empty()) {
    require(entries_.size() < std::numeric_limits<std::int32_t>::max(), "too many sequences");
    unused_ids_.emplace_back(static_cast<std::int32_t>(entries_.size()));
    entries_.emplace_back();
  }
  const SequenceId id = unused_ids_.back();
  unused_ids_.pop_back();
  Entry& entry = entries_[static_cast<std::size_t>(id.value)];
  entry = {};
  entry.open = true;
  entry.tables.resize(groups_.size());
  return id;
}

SequenceId KvBook::open(const PrefixIdentity& identity) {
  const SequenceId id = open();
  at(id).known = index_.open_root(identity);
  return id;
}

SequenceId KvBook::fork(SequenceId sequence) {
  require(at(sequence).tables.front().size() == pages_for(at(sequence).length) && at(sequence).copies.empty(),
          "a sequence was forked in a step");
  const SequenceId id = open();
  const Entry& from = at(sequence);
  Entry& to = at(id);
  to.length = from.length;
  for (std::size_t g = 0; g < groups_.size(); ++g) to.tables[g] = from.tables[g].share(groups_[g].pool);
  to.known_pages = from.known_pages;
  to.known = from.known;
  if (to.known.valid()) index_.pin(to.known);
  return id;
}

void KvBook::free(SequenceId sequence) {
  Entry& entry = at(sequence);
  release_all(entry);
  if (entry.known.valid()) index_.unpin(entry.known);
  entry = {};
  unused_ids_.push_back(sequence);
}

Reservation KvBook::reserve(SequenceId sequence, std::uint32_t n) {
  Entry& entry = at(sequence);
  require(n >= 1 && n <= max_chunk_, "a step with no tokens, or too many, was reserved");
  const std::uint32_t wanted = pages_for(entry.length + n);
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const std::uint32_t size = entry.tables[g].size();
    const std::uint32_t missing = (wanted > size ? wanted - size : 0) + (shares_tail(entry, g) ? 1 : 0);
    if (groups_[g].pool.counts().available() < missing) return Reservation::kDry;
  }
  for (std::uint32_t g = 0; g < groups(); ++g) {
    own_tail(entry, g);
    PageTable& table = entry.tables[g];
    while (table.size() < wanted) table.append(take(g));
  }
  return Reservation::kReserved;
}

bool KvBook::shares_tail(const Entry& entry, std::uint32_t group) const {
  if (entry.length % page_size_ == 0) return false;
  const PageId tail = entry.tables[group].page(static_cast<std::uint32_t>(entry.length / page_size_));
  return groups_[group].pool.references(tail) > 1;
}

bool KvBook::shares_tail(SequenceId sequence) const {
  const Entry& entry = at(sequence);
  for (std::uint32_t g = 0; g < groups(); ++g) {
    if (shares_tail(entry, g)) return true;
  }
  return false;
}

// The page that the next token goes into may be written by this sequence alone, and stands for no known text.
void KvBook::own_tail(Entry& entry, std::uint32_t group) {
  if (entry.length % page_size_ == 0) return;
  const auto m = static_cast<std::uint32_t>(entry.length / page_size_);
  PageTable& table = entry.tables[group];
  if (shares_tail(entry, group)) {
    const PageId own = take(group);
    entry.copies.push_back({group, table.set(m, own), own});
  } else if (groups_[group].pool.kept(table.page(m))) {
    forget(group, table.page(m));
  }
}

void KvBook::copied(SequenceId sequence) {
  drop_copies(at(sequence), [](const PageCopy&) { return true; });
}

template <class Which>
void KvBook::drop_copies(Entry& entry, Which&& which) {
  std::erase_if(entry.copies, [&](const PageCopy& copy) {
    if (!which(copy)) return false;
    groups_[copy.group].pool.release(copy.from);
    return true;
  });
}

void KvBook::append(SequenceId sequence, std::uint32_t n, std::span<const TokenId> text) {
  Entry& entry = at(sequence);
  require(pages_for(entry.length + n) <= entry.tables.front().size(), "tokens were appended without a reservation");
  require(entry.copies.empty(), "tokens were appended to a page that has not been copied");
  entry.length += n;
  if (entry.known.valid() && text.size() >= entry.length) make_known(entry, text);
  release_unseen(entry);
}

void KvBook::release_unseen(Entry& entry) {
  for (Group& group : groups_) {
    if (group.config.window == 0) continue;
    PageTable& table = entry.tables[static_cast<std::size_t>(&group - groups_.data())];
    table.release_before(static_cast<std::uint32_t>(first_seen(entry.length, group.config.window) / page_size_),
                         group.pool);
  }
}

std::uint64_t KvBook::truncate(SequenceId sequence, std::uint64_t length) {
  Entry& entry = at(sequence);
  require(length <= entry.length, "a sequence can't be truncated to more than it has");
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::uint64_t first = first_seen(length, groups_[g].config.window);
    if (std::uint64_t{entry.tables[g].first()} * page_size_ > first) length = 0;
  }
  if (length == 0) {
    release_all(entry);
    return 0;
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    entry.tables[g].release_from(pages_for(length), groups_[g].pool);
  }
  entry.length = length;
  drop_copies(entry, [&](const PageCopy& copy) {
    const auto pages = entry.tables[copy.group].entries();
    return pages.empty() || pages.back() != copy.to.value;  // the page that it was for has been given back
  });
  if (entry.known.valid()) {
    PrefixId prefix = entry.known;
    std::uint32_t pages = entry.known_pages;
    for (; pages > length / page_size_; --pages) prefix = index_.parent(prefix);
    know(entry, prefix, pages);
  }
  return length;
}

// Back to an empty sequence. Of all groups the last pages first.
void KvBook::release_all(Entry& entry) {
  drop_copies(entry, [](const PageCopy&) { return true; });
  for (std::size_t g = 0; g < groups_.size(); ++g) entry.tables[g].release_from(0, groups_[g].pool);
  entry.length = 0;
  PrefixId root = entry.known;
  for (; entry.known_pages > 0; --entry.known_pages) root = index_.parent(root);
  if (root.valid()) know(entry, root, 0);
}

std::span<const std::int32_t> KvBook::page_table(SequenceId sequence, std::uint32_t group) const {
  return at(sequence).tables.at(group).entries();
}

std::uint32_t KvBook::live_pages(SequenceId sequence, std::uint32_t group) const {
  return at(sequence).tables.at(group).live();
}

std::int64_t KvBook::slot(SequenceId sequence, std::uint32_t group, std::uint64_t position) const {
  const PageTable& table = at(sequence).tables.at(group);
  const std::uint64_t m = position / page_size_;
  require(m >= table.first() && m < table.size(), "a token has no page");
  return std::int64_t{table.entries()[m]} * page_size_ + static_cast<std::int64_t>(position % page_size_);
}

std::uint64_t KvBook::longest(std::uint64_t limit) const {
  for (std::uint32_t g = 0; g < groups(); ++g) limit = longest_in(groups_[g].config.pages, reach(g), limit);
  return limit;
}

KvBook::Entry& KvBook::at(SequenceId sequence) { return const_cast<Entry&>(std::as_const(*this).at(sequence)); }

const KvBook::Entry& KvBook::at(SequenceId sequence) const {
  require(sequence.valid() && static_cast<std::size_t>(sequence.value) < entries_.size() &&
              entries_[static_cast<std::size_t>(sequence.value)].open,
          "a sequence was used that is not open");
  return entries_[static_cast<std::size_t>(sequence.value)];
}

std::uint32_t KvBook::pages_for(std::uint64_t length) const {
  const std::uint64_t pages = length / page_size_ + (length % page_size_ != 0);
  require(pages <= std::numeric_limits<std::int32_t>::max(), "a sequence is too long for its page table");
  return static_cast<std::uint32_t>(pages);
}

}  // namespace backplane::kv
