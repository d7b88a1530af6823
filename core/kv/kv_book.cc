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

}  // namespace

KvBook::KvBook(std::uint32_t page_size, std::vector<GroupConfig> groups, std::uint32_t max_chunk)
    : page_size_(page_size), max_chunk_(max_chunk) {
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
  entries_[static_cast<std::size_t>(id.value)] = {
      .open = true, .length = 0, .tables = std::vector<PageTable>(groups_.size())};
  return id;
}

void KvBook::free(SequenceId sequence) {
  Entry& entry = at(sequence);
  for (std::size_t g = 0; g < groups_.size(); ++g) entry.tables[g].release_from(0, groups_[g].pool);
  entry = {};
  unused_ids_.push_back(sequence);
}

Reservation KvBook::reserve(SequenceId sequence, std::uint32_t n) {
  Entry& entry = at(sequence);
  require(n >= 1 && n <= max_chunk_, "a step with no tokens, or too many, was reserved");
  const std::uint32_t wanted = pages_for(entry.length + n);
  bool dry = false;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    PageTable& table = entry.tables[g];
    const std::uint64_t first = first_seen(entry.length, groups_[g].config.window);
    table.release_before(static_cast<std::uint32_t>(first / page_size_), groups_[g].pool);
    const std::uint32_t missing = wanted > table.size() ? wanted - table.size() : 0;
    dry |= groups_[g].pool.counts().free < missing;
  }
  if (dry) return Reservation::kDry;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    PageTable& table = entry.tables[g];
    while (table.size() < wanted) table.append(groups_[g].pool.take().value());
  }
  return Reservation::kReserved;
}

void KvBook::append(SequenceId sequence, std::uint32_t n) {
  Entry& entry = at(sequence);
  require(pages_for(entry.length + n) <= entry.tables.front().size(), "tokens were appended without a reservation");
  entry.length += n;
}

std::uint64_t KvBook::truncate(SequenceId sequence, std::uint64_t length) {
  Entry& entry = at(sequence);
  require(length <= entry.length, "a sequence can't be truncated to more than it has");
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::uint64_t first = first_seen(length, groups_[g].config.window);
    if (std::uint64_t{entry.tables[g].first()} * page_size_ > first) length = 0;
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    entry.tables[g].release_from(pages_for(length), groups_[g].pool);
  }
  return entry.length = length;
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
  const std::uint64_t pages = pages_needed(length, {.window = 0, .page_size = page_size_, .max_chunk = max_chunk_});
  require(pages <= std::numeric_limits<std::int32_t>::max(), "a sequence is too long for its page table");
  return static_cast<std::uint32_t>(pages);
}

}  // namespace backplane::kv
