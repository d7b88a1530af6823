// Decoding and repairing UTF-8. Every function accepts any bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace backplane::text {

// One step of a decoder: a code point and its bytes, or an ill-formed sequence.
struct CodePoint {
  char32_t value = 0;     // undefined where !valid
  std::uint8_t size = 0;  // in bytes, at least 1; of an ill-formed sequence: its maximal subpart
  bool valid = false;
  bool cut = false;  // ill-formed only because the text ends: more bytes could complete it
};

// Decodes the code point that starts at text[at]; at < text.size().
CodePoint decode_code_point(std::string_view text, std::size_t at);

// Appends the UTF-8 form of a code point up to U+10FFFF that is no surrogate.
void append_code_point(std::string& out, char32_t value);

// `bytes` with every ill-formed sequence replaced by U+FFFD, one per maximal subpart (Unicode 15, section 3.9, the
// practice that W3C and CPython's errors="replace" follow).
std::string to_valid_utf8(std::string_view bytes);

// How many bytes at the end of `bytes` start a character that isn't complete yet: 0 to 3.
std::size_t incomplete_tail(std::string_view bytes);

inline bool is_continuation_byte(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace backplane::text
