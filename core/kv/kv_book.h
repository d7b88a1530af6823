// Which KV pages belong to which sequence, in every group. Bookkeeping only: the bytes are the device's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/kv/page_pool.h"
#include "core/kv/page_table.h"
#include "core/kv/pages_needed.h"

namespace backplane::kv {

struct GroupConfig {
  std::uint32_t window = 0;  // 0: full attention
  std::uint32_t pages = 0;
};

enum class Reservation {
  kReserved,
  kDry,  // a pool has too few free pages; nothing was taken
};

// A sequence's life: open, then for every step reserve(n), the step writes K and V of its n tokens, append(n); free.
// A step that failed is not appended: its slots may be reserved again. One thread at a time. A call with a sequence
// that is not open is a bug and throws kInternal.
class KvBook {
 public:
  // `max_chunk`: the most tokens of a sequence in one step, by which groups with a window are sized.
  KvBook(std::uint32_t page_size, std::vector<GroupConfig> groups, std::uint32_t max_chunk);

  SequenceId open();
  void free(SequenceId sequence);  // gives back all its pages

  // Makes room in all groups for the n tokens that follow length(), or in none. Gives back, first, the pages that no
  // token from length() on can see. Requires: 1 <= n <= max_chunk.
  [[nodiscard]] Reservation reserve(SequenceId sequence, std::uint32_t n);
  // The n next tokens, reserved before, are in the cache.
  void append(SequenceId sequence, std::uint32_t n);

  // Keeps the first `length` tokens and gives back the pages of the rest, reserved ones too. Where a window has passed,
  // older tokens are gone and a shorter sequence may have lost what its next token must see: then nothing can be kept.
  // Returns how many tokens are left: `length` or 0. Requires: length <= length(sequence).
  std::uint64_t truncate(SequenceId sequence, std::uint64_t length);

  // Tokens in the cache.
  std::uint64_t length(SequenceId sequence) const { return at(sequence).length; }
  std::span<const std::int32_t> page_table(SequenceId sequence, std::uint32_t group) const;
  // Pages the sequence holds in a group.
  std::uint32_t live_pages(SequenceId sequence, std::uint32_t group) const;
  // Where K and V of the token at `position` go. Requires: its page is held.
  std::int64_t slot(SequenceId sequence, std::uint32_t group, std::uint64_t position) const;

  std::uint32_t groups() const { return static_cast<std::uint32_t>(groups_.size()); }
  std::uint32_t page_size() const { return page_size_; }
  std::uint32_t max_chunk() const { return max_chunk_; }
  std::uint32_t window(std::uint32_t group) const { return groups_.at(group).config.window; }
  PoolCounts counts(std::uint32_t group) const { return groups_.at(group).pool.counts(); }
  Reach reach(std::uint32_t group) const { return {window(group), page_size_, max_chunk_}; }

  // The longest sequence, at most `limit` tokens, that the empty pools can hold.
  std::uint64_t longest(std::uint64_t limit) const;

 private:
  struct Group {
    GroupConfig config;
    PagePool pool;
  };
  struct Entry {
    bool open = false;
    std::uint64_t length = 0;
    std::vector<PageTable> tables;  // by group
  };

  Entry& at(SequenceId sequence);
  const Entry& at(SequenceId sequence) const;
  std::uint32_t pages_for(std::uint64_t length) const;

  std::uint32_t page_size_;
  std::uint32_t max_chunk_;
  std::vector<Group> groups_;
  std::vector<Entry> entries_;          // by sequence id
  std::vector<SequenceId> unused_ids_;  // of closed entries
};

}  // namespace backplane::kv
