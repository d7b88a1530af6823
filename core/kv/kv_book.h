// Which KV pages belong to which sequence, in every group, and which are kept for a prefix that may return. Bookkeeping
// only: the bytes are the device's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/kv/page_pool.h"
#include "core/kv/page_table.h"
#include "core/kv/pages_needed.h"
#include "core/kv/prefix_index.h"

namespace backplane::kv {

struct GroupConfig {
  std::uint32_t window = 0;  // 0: full attention
  std::uint32_t pages = 0;
};

enum class Reservation {
  kReserved,
  kDry,  // a pool has too few pages that no one holds; nothing was taken
};

// Before the next step the contents of one page are to be copied to another of the same group.
struct PageCopy {
  std::uint32_t group = 0;
  PageId from, to;
  bool operator==(const PageCopy&) const = default;
};

// What a sequence would have in a group if it adopted a prefix.
struct PrefixPages {
  std::uint32_t held = 0;
  std::uint32_t idle = 0;  // of these, pages that no one holds yet: they would no longer be available to others
};

struct PrefixCounts {
  std::uint64_t queried = 0;  // tokens for which the cache was asked by adopt()
  std::uint64_t found = 0;    // of which so many were there
  std::uint64_t evicted = 0;  // pages that had to make room
};

// A sequence's life: open, perhaps adopt what the cache has; then for every step reserve(n), copy copies() and say
// copied(), the step writes K and V of its n tokens, append(n); free. A step that failed is not appended: its slots may
// be reserved again.
//
// Pages are shared, never written, in two ways. fork() gives a second sequence the same pages; whoever writes into a
// shared one gets a copy of it first. And when a page is full of the tokens of a sequence that was opened with an
// identity, it becomes known for the text that ends with it: sequences of the same identity whose text begins alike
// adopt it, also after its sequence is gone, until the page is needed otherwise. Of pages that no one holds, those
// given back first go first; a sequence gives its last ones back first, so that what goes is the end of a text.
//
// Behind a window pages are given back as soon as no query can see them. A prefix of L tokens may be adopted when every
// group has the pages that a query at position L sees: all of them, or those of its window.
//
// One thread at a time. A call with a sequence that is not open is a bug and throws kInternal.
class KvBook {
 public:
  // `max_chunk`: the most tokens of a sequence in one step, by which groups with a window are sized.
  KvBook(std::uint32_t page_size, std::vector<GroupConfig> groups, std::uint32_t max_chunk,
         PrefixHash hash = chain_hash);

  SequenceId open();  // shares nothing by text
  SequenceId open(const PrefixIdentity& identity);
  // A sequence with the same tokens in the cache. Requires: nothing is reserved beyond length(sequence).
  SequenceId fork(SequenceId sequence);
  void free(SequenceId sequence);  // gives back all its pages

  // The longest prefix of `text` that the sequence could adopt now, at most `most` tokens; a multiple of the page size.
  // pages: [groups], what it would have. 0 for a sequence that has tokens already or was opened without identity.
  std::uint64_t find(SequenceId sequence, std::span<const TokenId> text, std::uint64_t most,
                     std::span<PrefixPages> pages) const;
  // Takes it, and counts the query. Returns length(sequence).
  std::uint64_t adopt(SequenceId sequence, std::span<const TokenId> text, std::uint64_t most);

  // Makes room in all groups for the n tokens that follow length(), or in none. Requires: 1 <= n <= max_chunk.
  [[nodiscard]] Reservation reserve(SequenceId sequence, std::uint32_t n);
  // What must be copied, before the sequence's next step, because other sequences keep on using the originals.
  std::span<const PageCopy> copies(SequenceId sequence) const { return at(sequence).copies; }
  void copied(SequenceId sequence);
  // The n next tokens, reserved before, are in the cache. text: all tokens of the sequence, at least length() + n of
  // them; without it (or an identity) the pages don't become known.
  void append(SequenceId sequence, std::uint32_t n, std::span<const TokenId> text = {});

  // Keeps the first `length` tokens and gives back the pages of the rest, reserved ones too. Where a window has passed,
  // older tokens are gone and a shorter sequence may have lost what its next token must see: then nothing can be kept.
  // Returns how many tokens are left: `length` or 0. Requires: length <= length(sequence).
  std::uint64_t truncate(SequenceId sequence, std::uint64_t length);
  // The contents of all pages are gone: every sequence is truncated to 0, nothing is kept.
  void lose_contents();

  // What the sequence has computed may be wrong: none of the pages of its text is found any more.
  void distrust(SequenceId sequence);

  // Tokens in the cache.
  std::uint64_t length(SequenceId sequence) const { return at(sequence).length; }
  std::span<const std::int32_t> page_table(SequenceId sequence, std::uint32_t group) const;
  // Pages the sequence holds in a group.
  std::uint32_t live_pages(SequenceId sequence, std::uint32_t group) const;
  // Whether the next token goes into a page that others use too: one page more is needed for its copy.
  bool shares_tail(SequenceId sequence) const;
  // Where K and V of the token at `position` go. Requires: its page is held.
  std::int64_t slot(SequenceId sequence, std::uint32_t group, std::uint64_t position) const;

  std::uint32_t groups() const { return static_cast<std::uint32_t>(groups_.size()); }
  std::uint32_t page_size() const { return page_size_; }
  std::uint32_t max_chunk() const { return max_chunk_; }
  std::uint32_t window(std::uint32_t group) const { return groups_.at(group).config.window; }
  PoolCounts counts(std::uint32_t group) const { return groups_.at(group).pool.counts(); }
  // Pages whose contents must be kept when the cache moves to another device.
  std::vector<std::int32_t> pages_in_use(std::uint32_t group) const { return groups_.at(group).pool.in_use(); }
  Reach reach(std::uint32_t group) const { return {window(group), page_size_, max_chunk_}; }
  const PrefixCounts& prefix_counts() const { return prefix_counts_; }
  const PrefixIndex& index() const { return index_; }

  // The longest sequence, at most `limit` tokens, that the empty pools can hold.
  std::uint64_t longest(std::uint64_t limit) const;

  // Counts everything anew. Empty when free + cached + held = total in every group, references are those of the open
  // sequences and the index agrees; else what is wrong. Takes time for every page.
  std::string fault() const;

 private:
  struct Group {
    GroupConfig config;
    PagePool pool;
  };
  struct Entry {
    bool open = false;
    std::uint64_t length = 0;
    std::vector<PageTable> tables;  // by group
    std::vector<PageCopy> copies;   // each holds a reference to `from`
    PrefixId known;                 // pinned: the prefix of its first known_pages pages; invalid: no identity
    std::uint32_t known_pages = 0;
  };
  struct Found {
    PrefixId node;
    std::uint32_t pages = 0;
  };

  Entry& at(SequenceId sequence);
  const Entry& at(SequenceId sequence) const;
  std::uint32_t pages_for(std::uint64_t length) const;
  bool shares_tail(const Entry& entry, std::uint32_t group) const;
  void own_tail(Entry& entry, std::uint32_t group);
  template <class Which>
  void drop_copies(Entry& entry, Which&& which);
  void release_all(Entry& entry);
  void release_unseen(Entry& entry);

  // kv_prefix.cc
  Found find(const Entry& entry, std::span<const TokenId> text, std::uint64_t most) const;
  std::uint32_t first_page(std::uint32_t pages, std::uint32_t group) const;
  void make_known(Entry& entry, std::span<const TokenId> text);
  void know(Entry& entry, PrefixId prefix, std::uint32_t pages);
  PageId take(std::uint32_t group);
  void forget(std::uint32_t group, PageId page);
  bool evict(std::uint32_t group);
  bool evict_any();

  std::uint32_t page_size_;
  std::uint32_t max_chunk_;
  std::vector<Group> groups_;
  PrefixIndex index_;
  PrefixCounts prefix_counts_;
  std::vector<Entry> entries_;          // by sequence id
  std::vector<SequenceId> unused_ids_;  // of closed entries
};

}  // namespace backplane::kv
