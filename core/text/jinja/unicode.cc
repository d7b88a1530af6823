#include "core/text/jinja/unicode.h"

#include <utf8proc.h>

#include <cstring>

namespace backplane::text::jinja {
namespace {

utf8proc_category_t category(char32_t c) {
  return c > 0x10ffff ? UTF8PROC_CATEGORY_CN : utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_letter(utf8proc_category_t c) { return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO; }
bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

enum class Case { kUpper, kLower, kTitle };

void append_cased(std::string& out, char32_t c, Case target) {
  if (c > 0x10ffff) {
    out.push_back(static_cast<char>(c - kBadByte));
    return;
  }
  // utf8proc maps one code point to one; the two mappings to several that everyday text has are spelled out.
  if (c == U'ß' && target != Case::kLower) {
    out += target == Case::kUpper ? "SS" : "Ss";
    return;
  }
  if (c == U'İ' && target == Case::kLower) {
    out += "i\u0307";
    return;
  }
  auto code = static_cast<utf8proc_int32_t>(c);
  switch (target) {
    case Case::kUpper:
      code = utf8proc_toupper(code);
      break;
    case Case::kLower:
      code = utf8proc_tolower(code);
      break;
    case Case::kTitle:
      code = utf8proc_totitle(code);
      break;
  }
  append_code_point(out, static_cast<char32_t>(code));
}

std::string map_all(std::string_view text, Case target) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) append_cased(out, next_code_point(text, at), target);
  return out;
}

bool is_line_end(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

// Start of the code point that ends at `end`.
std::size_t previous_start(std::string_view text, std::size_t end) {
  for (std::size_t back = 1; back <= 4 && back <= end; ++back) {
    std::size_t at = end - back;
    if ((static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) continue;
    std::size_t after = at;
    next_code_point(text, after);
    if (after == end) return at;
    break;
  }
  return end - 1;
}

}  // namespace

char32_t next_code_point(std::string_view text, std::size_t& position) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char first = byte(position++);
  if (first < 0x80) return first;
  int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
  static constexpr char32_t kSmallest[] = {0, 0x80, 0x800, 0x10000};
  if (first < 0xc2 || first > 0xf4 || text.size() - position < static_cast<std::size_t>(more)) return kBadByte + first;
  char32_t c = first & (0x3f >> more);
  for (int i = 0; i < more; ++i) {
    unsigned char next = byte(position + static_cast<std::size_t>(i));
    if ((next & 0xc0) != 0x80) return kBadByte + first;
    c = (c << 6) | (next & 0x3f);
  }
  if (c < kSmallest[more] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return kBadByte + first;
  position += static_cast<std::size_t>(more);
  return c;
}

void append_code_point(std::string& text, char32_t c) {
  if (c > 0x10ffff) {
    text.push_back(static_cast<char>(c - kBadByte));
    return;
  }
  utf8proc_uint8_t bytes[4];
  auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count));
}

std::size_t count_code_points(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); ++count) next_code_point(text, at);
  return count;
}

std::vector<std::string_view> split_code_points(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t start = at;
    next_code_point(text, at);
    parts.push_back(text.substr(start, at - start));
  }
  return parts;
}

bool is_ascii(std::string_view text) {
  for (char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_alpha(char32_t c) { return is_letter(category(c)); }

bool is_digit(char32_t c) {
  // The digits that aren't decimal (superscripts and the like) have category No; the common ones are enough here.
  return category(c) == UTF8PROC_CATEGORY_ND || c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089);
}

bool is_numeric(char32_t c) {
  auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_word(char32_t c) { return c == '_' || is_alpha(c) || is_numeric(c); }

bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || c == 0xaa || c == 0xba; }
bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  auto kind = category(c);
  return kind != UTF8PROC_CATEGORY_CN && kind < UTF8PROC_CATEGORY_ZS;
}

std::string to_upper(std::string_view text) { return map_all(text, Case::kUpper); }
std::string to_lower(std::string_view text) { return map_all(text, Case::kLower); }

std::string to_capitalized(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    bool first = at == 0;
    append_cased(out, next_code_point(text, at), first ? Case::kTitle : Case::kLower);
  }
  return out;
}

std::string to_titled(std::string_view text) {
  std::string out;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    char32_t c = next_code_point(text, at);
    append_cased(out, c, inside ? Case::kLower : Case::kTitle);
    inside = is_cased(c);
  }
  return out;
}

std::string to_swapped_case(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    char32_t c = next_code_point(text, at);
    append_cased(out, c, is_upper(c) ? Case::kLower : Case::kUpper);
  }
  return out;
}

std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> chars) {
  auto strips = [&](std::size_t start, std::size_t end) {
    std::string_view one = text.substr(start, end - start);
    if (chars) return find_text(*chars, one) != std::string_view::npos;
    std::size_t at = 0;
    return is_space(next_code_point(one, at));
  };
  std::size_t start = 0;
  std::size_t end = text.size();
  while (side != Side::kRight && start < end) {
    std::size_t after = start;
    next_code_point(text, after);
    if (!strips(start, after)) break;
    start = after;
  }
  while (side != Side::kLeft && start < end) {
    std::size_t last = previous_start(text, end);
    if (!strips(last, end)) break;
    end = last;
  }
  return text.substr(start, end - start);
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t start = 0;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    char32_t c = next_code_point(text, at);
    if (!is_line_end(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(start, (keep_ends ? at : end) - start));
    start = at;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::size_t find_text(std::string_view text, std::string_view needle, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  // memmem is linear; std::string_view::find would be quadratic on texts made for it.
  const void* found = ::memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found ? static_cast<std::size_t>(static_cast<const char*>(found) - text.data()) : std::string_view::npos;
}

}  // namespace backplane::text::jinja
