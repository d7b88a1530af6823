// What filters and methods of text share.
#include <algorithm>

#include "core/text/jinja/budget.h"
#include "core/text/jinja/builtins.h"
#include "core/text/jinja/template_error.h"

namespace backplane::text::jinja {

std::string replace_text(std::string_view text, std::string_view old, std::string_view with, Int count) {
  charge_scan(text.size());
  std::string out;
  std::size_t at = 0;
  for (; count != 0; --count) {
    charge_steps(1);
    std::size_t found = find_text(text, old, at);
    if (found == std::string_view::npos) break;
    append_charged(out, text.substr(at, found - at));
    append_charged(out, with);
    at = found + old.size();
    if (!old.empty()) continue;
    // The empty string is found in front of each code point and at the end.
    if (at >= text.size()) return out;
    std::size_t next = at;
    next_code_point(text, next);
    append_charged(out, text.substr(at, next - at));
    at = next;
  }
  append_charged(out, text.substr(at));
  return out;
}

std::vector<std::string_view> charged_code_points(std::string_view text) {
  charge_steps(text.size() / 8);
  charge_bytes(text.size() * sizeof(std::string_view));
  return split_code_points(text);
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (char c : text) {
    std::string_view as = c == '&'    ? "&amp;"
                          : c == '<'  ? "&lt;"
                          : c == '>'  ? "&gt;"
                          : c == '\'' ? "&#39;"
                          : c == '"'  ? "&#34;"
                                      : std::string_view(&c, 1);
    out.append(as);
  }
  charge_bytes(out.size());
  return out;
}

std::string center_text(std::string_view text, Int width, std::string_view fill) {
  Int missing = width - static_cast<Int>(count_code_points(text));
  auto blanks = static_cast<std::uint64_t>(clamp_int(missing, 0, INT64_MAX));
  // Python puts the odd blank to the left if the width is odd.
  std::uint64_t left = blanks / 2 + (blanks & static_cast<std::uint64_t>(width & 1) & 1);
  std::string out;
  append_repeated(out, fill, left);
  append_charged(out, text);
  append_repeated(out, fill, blanks - left);
  return out;
}

std::string_view strip_charged(std::string_view text, Side side, const Value* chars) {
  if (!chars || chars->is_none()) {
    charge_scan(text.size());
    return strip(text, side);
  }
  const std::string& set = chars->as_string();
  charge_steps(text.size() / 8 * (set.size() / 64 + 1));
  return strip(text, side, set);
}

}  // namespace backplane::text::jinja
