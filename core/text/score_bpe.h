// SentencePiece's byte pair encoding: of all neighbors that form a piece, those with the best score merge first.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/text/byte_trie.h"
#include "core/text/vocabulary.h"

namespace backplane::text {

// Immutable after construction apart from a memo of atomics, so free-threaded.
class ScoreBpeModel {
 public:
  // `scores` are one per piece; `vocabulary` must outlive the model. Throws Error{kBadFile} for a score that's no
  // number.
  ScoreBpeModel(const Vocabulary& vocabulary, std::vector<float> scores, TokenId unknown, bool freeze_user_defined,
                std::string_view where);

  // Appends the ids of normalized text (spaces are U+2581 already). What no piece covers becomes byte tokens, or, where
  // the vocabulary lacks those, one unknown token per run. Time is n log n.
  void encode(std::string_view text, std::vector<TokenId>& out) const;

 private:
  struct Symbol;
  class Merger;
  using Splits = std::unordered_map<std::string_view, std::size_t>;  // unused piece -> size of its left part

  void encode_word(std::string_view word, std::vector<TokenId>& out) const;
  void merge(std::string_view word, std::vector<TokenId>& out) const;
  void emit(std::string_view piece, const Splits& splits, std::vector<TokenId>& out) const;

  const Vocabulary& vocabulary_;
  std::vector<std::uint32_t> order_;  // per id, smaller is a better score
  TokenId unknown_;
  bool has_all_bytes_ = true;
  bool words_are_separate_;
  ByteTrie user_defined_;  // frozen pieces
  enum Reach : std::uint8_t { kUntried, kReached, kNotReached };
  std::unique_ptr<std::atomic<std::uint8_t>[]> reach_;
};

}  // namespace backplane::text
