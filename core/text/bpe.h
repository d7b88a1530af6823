// Byte pair encoding by ranked merges, as GPT-2 and its successors use it.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/flat_table.h"
#include "core/text/vocabulary.h"

namespace backplane::text {

struct BpeOptions {
  bool byte_level = true;      // symbols are bytes; otherwise characters
  bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges say
  bool byte_fallback = false;  // characters: one that has no token becomes its bytes' tokens
  bool fuse_unknown = false;   // characters: neighbors without a token become one unknown token
  TokenId unknown = kNoToken;  // kNoToken: what has no token is left out
};

// Immutable after construction apart from a memo of atomics, so free-threaded.
class BpeModel {
 public:
  using Merge = std::pair<std::string_view, std::string_view>;  // left and right piece as in the file, best first

  // `vocabulary` must outlive the model. Throws Error{kBadFile} for a merge whose pieces aren't all in the vocabulary.
  BpeModel(const Vocabulary& vocabulary, std::span<const Merge> merges, BpeOptions options, std::string_view where);

  // Appends the ids of a piece (a word that the pre-tokenizer cut off). Time is n log n in its length.
  void encode(std::string_view piece, std::vector<TokenId>& out) const;

 private:
  void add_merge(const Merge& merge, std::uint32_t rank, std::string& scratch, std::string_view where);
  void merge(std::string_view piece, std::vector<TokenId>& out) const;
  void start_symbols(std::string_view piece, std::vector<TokenId>& symbols) const;
  void append_missing(std::string_view character, std::vector<TokenId>& symbols) const;
  void merge_short(std::vector<TokenId>& symbols) const;
  void merge_long(std::vector<TokenId>& symbols) const;

  const Vocabulary& vocabulary_;
  BpeOptions options_;
  PairTable merges_;  // (left id, right id) -> rank << 32 | merged id
  // Whether merging a token's own bytes gives that token; found out when a token's text first turns up whole.
  enum Reach : std::uint8_t { kUntried, kReached, kNotReached };
  std::unique_ptr<std::atomic<std::uint8_t>[]> reach_;
};

}  // namespace backplane::text
