// The character classes that pre-tokenizers ask about.
#pragma once

#include <cstdint>

namespace backplane::text {

enum class CharClass : std::uint8_t {
  kOther,
  kLetter,  // \p{L}
  kNumber,  // \p{N}
  kSpace    // White_Space, which \s means in the regular expressions of tokenizer files
};

// Of every code point up to U+10FFFF (Unicode 15.0): the table behind it has 0x110000 entries and is filled on first
// use.
const CharClass* char_class_table();

inline constexpr char32_t kCodePointLimit = 0x110000;

}  // namespace backplane::text
