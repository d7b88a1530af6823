#include "core/text/utf8.h"

namespace backplane::text {
namespace {

struct Lead {
  int size = 0;               // of the whole sequence; 0: no lead byte
  unsigned char low = 0x80;   // the range of the second byte: narrower than 80..BF where
  unsigned char high = 0xBF;  // overlong forms, surrogates or values above U+10FFFF would start
};

Lead classify(unsigned char byte) {
  if (byte < 0xC2) return {};
  if (byte < 0xE0) return {.size = 2};
  if (byte < 0xF0) {
    return {.size = 3,
            .low = byte == 0xE0 ? std::uint8_t{0xA0} : std::uint8_t{0x80},
            .high = byte == 0xED ? std::uint8_t{0x9F} : std::uint8_t{0xBF}};
  }
  if (byte < 0xF5) {
    return {.size = 4,
            .low = byte == 0xF0 ? std::uint8_t{0x90} : std::uint8_t{0x80},
            .high = byte == 0xF4 ? std::uint8_t{0x8F} : std::uint8_t{0xBF}};
  }
  return {};
}

}  // namespace

CodePoint decode_code_point(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return {.value = first, .size = 1, .valid = true};
  const Lead lead = classify(first);
  if (lead.size == 0) return {.size = 1};
  char32_t value = first & (0x7Fu >> lead.size);
  for (int i = 1; i < lead.size; ++i) {
    if (at + i >= text.size()) return {.size = static_cast<std::uint8_t>(i), .cut = true};
    const unsigned char next = byte(at + i);
    const bool fits = i == 1 ? next >= lead.low && next <= lead.high : (next & 0xC0) == 0x80;
    if (!fits) return {.size = static_cast<std::uint8_t>(i)};
    value = value << 6 | (next & 0x3Fu);
  }
  return {.value = value, .size = static_cast<std::uint8_t>(lead.size), .valid = true};
}

void append_code_point(std::string& out, char32_t value) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | value >> 6);
    put(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    put(0xE0 | value >> 12);
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  } else {
    put(0xF0 | value >> 18);
    put(0x80 | (value >> 12 & 0x3F));
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  }
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const CodePoint point = decode_code_point(bytes, at);
    if (point.valid) {
      out.append(bytes, at, point.size);
    } else {
      out.append("\xEF\xBF\xBD");
    }
    at += point.size;
  }
  return out;
}

std::size_t incomplete_tail(std::string_view bytes) {
  for (std::size_t back = 1; back <= 3 && back <= bytes.size(); ++back) {
    const std::size_t at = bytes.size() - back;
    if (is_continuation_byte(bytes[at])) continue;
    return decode_code_point(bytes, at).cut ? back : 0;
  }
  return 0;
}

}  // namespace backplane::text
