// Hand-written pre-tokenizers for the patterns that most vocabularies use.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/text/unicode_class.h"

namespace backplane::text {

enum class ScannerKind : std::uint8_t {
  kGpt2,    // GPT-2's pattern
  kSmolLm,  // every number character alone, GPT-2's pattern between them
  kLlama3,  // case-blind contractions, up to three number characters together
  kQwen2    // the same with single number characters
};

// The regular expression whose matches, one after another, are the scanner's pieces. For kSmolLm that is GPT-2's with a
// single \p{N} and lookaheads that take a number for the end of the text.
std::string_view scanner_pattern(ScannerKind kind);

// The scanner of a regular expression written exactly as one of the known tokenizers writes it.
std::optional<ScannerKind> scanner_for_pattern(std::string_view pattern);

// Cuts a text into pieces from the front. Bytes that aren't UTF-8 count as characters of no class. Free-threaded.
class Scanner {
 public:
  explicit Scanner(ScannerKind kind) : kind_(kind), classes_(char_class_table()) {}

  // The end of the piece that starts at `at` < text.size(): always greater than `at`.
  std::size_t next(std::string_view text, std::size_t at) const;

 private:
  struct Symbol {
    char32_t value = 0;
    std::uint32_t size = 0;  // 0 at the end of the text
    CharClass kind = CharClass::kOther;
  };

  Symbol peek(std::string_view text, std::size_t at) const;
  std::size_t skip(std::string_view text, std::size_t at, CharClass kind) const;
  std::size_t contraction(std::string_view text, std::size_t at, bool any_case) const;
  std::size_t next_gpt2(std::string_view text, std::size_t at) const;
  std::size_t next_llama3(std::string_view text, std::size_t at) const;

  ScannerKind kind_;
  const CharClass* classes_;
};

}  // namespace backplane::text
