// The methods of strings.
#include <algorithm>

#include "core/text/jinja/budget.h"
#include "core/text/jinja/builtins.h"
#include "core/text/jinja/format.h"
#include "core/text/jinja/template_error.h"

namespace backplane::text::jinja {
namespace {

constexpr auto kNpos = std::string_view::npos;

Value text_value(std::string_view text) { return Value::string(std::string(text)); }

// Parts of a safe text are safe.
Values marked(Values parts, const Value& whole) {
  if (!whole.is_safe()) return parts;
  for (Value& part : parts) part = Value::string(part.as_string(), true);
  return parts;
}

// --- Case and classes ------------------------------------------------------------------------------------------

template <std::string (*map)(std::string_view)>
Value str_map(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("str method", arguments, {});
  charge_steps(self.as_string().size() / 16);
  return Value::string(map(self.as_string()), self.is_safe());
}

template <bool (*has_class)(char32_t)>
Value str_all(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("str method", arguments, {});
  const std::string& text = self.as_string();
  charge_steps(text.size() / 16);
  for (std::size_t at = 0; at < text.size();) {
    if (!has_class(next_code_point(text, at))) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c); }

// Whether all cased characters have this case, and there are any.
template <bool upper>
Value str_is_case(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("str method", arguments, {});
  const std::string& text = self.as_string();
  charge_steps(text.size() / 16);
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    char32_t c = next_code_point(text, at);
    if (is_title(c) || (upper ? is_lower(c) : is_upper(c))) return Value::boolean(false);
    any = any || (upper ? is_upper(c) : is_lower(c));
  }
  return Value::boolean(any);
}

// --- Stripping and padding -------------------------------------------------------------------------------------

template <Side side>
Value str_strip(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("strip", arguments, {"chars"});
  if (!bound.is_none(0) && !bound.at(0).is_string()) fail("strip arg must be None or str");
  return Value::string(std::string(strip_charged(self.as_string(), side, bound.get(0))), self.is_safe());
}

template <bool prefix>
Value str_remove(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("str method", arguments, {"affix"}, 1);
  std::string_view text = self.as_string();
  std::string affix = bound.string(0, "");
  if (prefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!prefix && text.ends_with(affix)) text.remove_suffix(affix.size());
  return text_value(text);
}

template <Side side>
Value str_pad(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("str method", arguments, {"width", "fillchar"}, 1);
  const std::string& text = self.as_string();
  std::string fill = bound.string(1, " ");
  if (count_code_points(fill) != 1) fail("The fill character must be exactly one character long");
  if (side == Side::kBoth) return Value::string(center_text(text, bound.integer(0, 0), fill));
  Int missing = bound.integer(0, 0) - static_cast<Int>(length(self));
  auto count = static_cast<std::uint64_t>(clamp_int(missing, 0, INT64_MAX));
  std::string out;
  if (side == Side::kRight) append_repeated(out, fill, count);
  append_charged(out, text);
  if (side == Side::kLeft) append_repeated(out, fill, count);
  return Value::string(std::move(out));
}

Value str_zfill(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("zfill", arguments, {"width"}, 1);
  std::string_view text = self.as_string();
  Int missing = bound.integer(0, 0) - static_cast<Int>(length(self));
  bool has_sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  std::string out(text.substr(0, has_sign ? 1 : 0));
  append_repeated(out, "0", static_cast<std::uint64_t>(clamp_int(missing, 0, INT64_MAX)));
  append_charged(out, text.substr(has_sign ? 1 : 0));
  return Value::string(std::move(out));
}

Value str_expandtabs(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("expandtabs", arguments, {"tabsize"});
  auto size = static_cast<std::uint64_t>(clamp_int(bound.integer(0, 8), 0, INT32_MAX));
  std::string out;
  std::uint64_t column = 0;
  for (std::string_view part : charged_code_points(self.as_string())) {
    if (part == "\t") {
      std::uint64_t blanks = size == 0 ? 0 : size - column % size;
      append_repeated(out, " ", blanks);
      column += blanks;
    } else {
      append_charged(out, part);
      column = part == "\n" || part == "\r" ? 0 : column + 1;
    }
  }
  return Value::string(std::move(out));
}

// --- Searching -------------------------------------------------------------------------------------------------

// The part of the text between two optional positions, and where it begins.
struct Window {
  std::string_view text;
  std::size_t start = 0;  // in bytes
};

std::size_t byte_of(std::string_view text, Int code_point) {
  std::size_t at = 0;
  for (; code_point > 0 && at < text.size(); --code_point) next_code_point(text, at);
  return at;
}

// Nothing if the start is behind the end, where Python finds not even the empty string.
std::optional<Window> window(const Value& self, const Bound& bound, std::size_t first_parameter) {
  std::string_view text = self.as_string();
  charge_scan(text.size());
  if (bound.is_none(first_parameter) && bound.is_none(first_parameter + 1)) return Window{text, 0};
  Int count = static_cast<Int>(count_code_points(text));
  auto limit = [&](std::size_t parameter, Int otherwise) {
    Int at = bound.is_none(parameter) ? otherwise : bound.integer(parameter, 0);
    return at < 0 ? std::max<Int>(0, at + count) : at;
  };
  Int start = limit(first_parameter, 0);
  Int end = std::min(limit(first_parameter + 1, count), count);
  if (start > end) return std::nullopt;
  std::size_t from = byte_of(text, start);
  return Window{text.substr(from, byte_of(text, end) - from), from};
}

// In linear time: the first match in the reversed text. The text is taken in pieces that double, so that many
// searches from the back of a long one cost no more than what they pass over.
std::size_t find_last(std::string_view text, std::string_view needle) {
  if (needle.empty()) return text.size();
  std::string backwards(needle.rbegin(), needle.rend());
  for (std::size_t piece = 2 * needle.size() + 64;; piece *= 2) {
    std::size_t from = text.size() > piece ? text.size() - piece : 0;
    std::string reversed(text.rbegin(), text.rend() - static_cast<std::ptrdiff_t>(from));
    charge_steps(reversed.size() / 16);
    std::size_t at = find_text(reversed, backwards);
    if (at != kNpos) return text.size() - at - needle.size();
    if (from == 0) return kNpos;
  }
}

Int found_at(const Value& self, const Arguments& arguments, bool last) {
  Bound bound("find", arguments, {"sub", "start", "end"}, 1);
  std::string needle = bound.string(0, "");
  auto in = window(self, bound, 1);
  if (!in) return -1;
  std::size_t at = last ? find_last(in->text, needle) : find_text(in->text, needle);
  if (at == kNpos) return -1;
  return static_cast<Int>(count_code_points(std::string_view(self.as_string()).substr(0, in->start + at)));
}

template <bool last, bool must_be>
Value str_find(Interpreter&, const Value& self, const Arguments& arguments) {
  Int at = found_at(self, arguments, last);
  if (must_be && at < 0) fail("substring not found");
  return Value::integer(at);
}

Value str_count(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("count", arguments, {"sub", "start", "end"}, 1);
  std::string needle = bound.string(0, "");
  auto in = window(self, bound, 1);
  if (!in) return Value::integer(0);
  if (needle.empty()) return Value::integer(static_cast<Int>(count_code_points(in->text)) + 1);
  Int count = 0;
  for (std::size_t at = find_text(in->text, needle); at != kNpos;
       at = find_text(in->text, needle, at + needle.size())) {
    charge_steps(1);
    ++count;
  }
  return Value::integer(count);
}

// startswith and endswith: of one string, or of any in a tuple.
template <bool start>
Value str_affix(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("startswith", arguments, {"affix", "start", "end"}, 1);
  auto in = window(self, bound, 1);
  auto matches = [&](const Value& affix) {
    if (!affix.is_string()) {
      fail(std::string(start ? "startswith" : "endswith") + " first arg must be str or a tuple of str, not " +
           type_name(affix));
    }
    charge_scan(affix.as_string().size());
    return in && (start ? in->text.starts_with(affix.as_string()) : in->text.ends_with(affix.as_string()));
  };
  if (!bound.at(0).is(Kind::kTuple)) return Value::boolean(matches(bound.at(0)));
  const Values& any = bound.at(0).items();
  return Value::boolean(std::any_of(any.begin(), any.end(), matches));
}

// --- Splitting and joining -------------------------------------------------------------------------------------

void split_at_space(std::string_view text, Int most, Values& parts) {
  text = strip(text, Side::kLeft);
  while (!text.empty()) {
    std::size_t end = 0;
    std::size_t next = 0;
    while (next < text.size() && !is_space(next_code_point(text, next))) end = next;
    if (most == 0) end = text.size();
    parts.push_back(text_value(text.substr(0, end)));
    --most;
    text = strip(text.substr(end), Side::kLeft);
  }
}

void split_back_at_space(std::string_view text, Int most, Values& parts) {
  text = strip(text, Side::kRight);
  std::vector<std::string_view> letters = charged_code_points(text);
  std::size_t end = text.size();
  std::size_t start = end;
  for (std::size_t i = letters.size(); i > 0 && most != 0; --i) {
    std::size_t at = 0;
    bool space = is_space(next_code_point(letters[i - 1], at));
    std::size_t before = start - letters[i - 1].size();
    if (space && start < end) {
      parts.push_back(text_value(text.substr(start, end - start)));
      --most;
    }
    start = before;
    if (space) end = start;
  }
  std::string_view rest = strip(text.substr(0, end), most == 0 ? Side::kRight : Side::kBoth);
  if (!rest.empty()) parts.push_back(text_value(rest));
  std::reverse(parts.begin(), parts.end());
}

void split_at(std::string_view text, std::string_view separator, Int most, Values& parts) {
  for (; most != 0; --most) {
    std::size_t at = find_text(text, separator);
    if (at == kNpos) break;
    parts.push_back(text_value(text.substr(0, at)));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(text_value(text));
}

void split_back_at(std::string_view text, std::string_view separator, Int most, Values& parts) {
  for (; most != 0; --most) {
    std::size_t at = find_last(text, separator);
    if (at == kNpos) break;
    parts.push_back(text_value(text.substr(at + separator.size())));
    text = text.substr(0, at);
  }
  parts.push_back(text_value(text));
  std::reverse(parts.begin(), parts.end());
}

template <bool back>
Value str_split(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("split", arguments, {"sep", "maxsplit"});
  const std::string& text = self.as_string();
  Int most = bound.integer(1, -1);
  charge_steps(text.size() / 16);
  Values parts;
  if (bound.is_none(0)) {
    back ? split_back_at_space(text, most, parts) : split_at_space(text, most, parts);
  } else {
    std::string separator = bound.string(0, "");
    if (separator.empty()) fail("empty separator");
    back ? split_back_at(text, separator, most, parts) : split_at(text, separator, most, parts);
  }
  return Value::list(marked(std::move(parts), self));
}

Value str_splitlines(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("splitlines", arguments, {"keepends"});
  charge_steps(self.as_string().size() / 16);
  Values lines;
  for (std::string_view line : split_lines(self.as_string(), bound.boolean(0, false))) {
    lines.push_back(text_value(line));
  }
  return Value::list(marked(std::move(lines), self));
}

template <bool back>
Value str_partition(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("partition", arguments, {"sep"}, 1);
  std::string_view text = self.as_string();
  std::string separator = bound.string(0, "");
  if (separator.empty()) fail("empty separator");
  charge_scan(text.size());
  std::size_t at = back ? find_last(text, separator) : find_text(text, separator);
  Values parts = {text_value(text), text_value(""), text_value("")};
  if (at != kNpos) {
    parts = {text_value(text.substr(0, at)), text_value(separator), text_value(text.substr(at + separator.size()))};
  } else if (back) {
    std::swap(parts[0], parts[2]);
  }
  return Value::tuple(marked(std::move(parts), self));
}

Value str_join(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("join", arguments, {"iterable"}, 1);
  if (!is_iterable(bound.at(0))) fail("can only join an iterable");
  Elements parts(bound.at(0));
  std::string out;
  for (std::size_t i = 0; i < parts.all().size(); ++i) {
    const Value& part = parts.all()[i];
    if (!part.is_string()) {
      fail("sequence item " + std::to_string(i) + ": expected str instance, " + type_name(part) + " found");
    }
    if (i > 0) append_charged(out, self.as_string());
    append_charged(out, part.as_string());
  }
  return Value::string(std::move(out));
}

Value str_replace(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  return Value::string(replace_text(self.as_string(), bound.string(0, ""), bound.string(1, ""), bound.integer(2, -1)),
                       self.is_safe());
}

Value str_format(Interpreter&, const Value& self, const Arguments& arguments) {
  return Value::string(format_braces(self.as_string(), arguments));
}

Value str_format_map(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("format_map", arguments, {"mapping"}, 1);
  Arguments named;
  if (!bound.at(0).is(Kind::kDict)) fail("format_map() argument must be a mapping");
  for (const auto& [key, value] : bound.at(0).as_dict().entries()) {
    if (key.is_string()) named.named.emplace_back(key.as_string(), value);
  }
  return Value::string(format_braces(self.as_string(), named));
}

}  // namespace

const NativeTable& string_methods() {
  static const NativeTable table = {
      {"upper", str_map<to_upper>},
      {"lower", str_map<to_lower>},
      {"casefold", str_map<to_lower>},
      {"title", str_map<to_titled>},
      {"capitalize", str_map<to_capitalized>},
      {"swapcase", str_map<to_swapped_case>},
      {"isspace", str_all<is_space>},
      {"isalpha", str_all<is_alpha>},
      {"isdigit", str_all<is_digit>},
      {"isdecimal", str_all<is_digit>},
      {"isnumeric", str_all<is_numeric>},
      {"isalnum", str_all<is_alnum>},
      {"isprintable", str_all<is_printable>},
      {"isupper", str_is_case<true>},
      {"islower", str_is_case<false>},
      {"strip", str_strip<Side::kBoth>},
      {"lstrip", str_strip<Side::kLeft>},
      {"rstrip", str_strip<Side::kRight>},
      {"removeprefix", str_remove<true>},
      {"removesuffix", str_remove<false>},
      {"center", str_pad<Side::kBoth>},
      {"ljust", str_pad<Side::kLeft>},
      {"rjust", str_pad<Side::kRight>},
      {"zfill", str_zfill},
      {"expandtabs", str_expandtabs},
      {"find", str_find<false, false>},
      {"rfind", str_find<true, false>},
      {"index", str_find<false, true>},
      {"rindex", str_find<true, true>},
      {"count", str_count},
      {"startswith", str_affix<true>},
      {"endswith", str_affix<false>},
      {"split", str_split<false>},
      {"rsplit", str_split<true>},
      {"splitlines", str_splitlines},
      {"partition", str_partition<false>},
      {"rpartition", str_partition<true>},
      {"join", str_join},
      {"replace", str_replace},
      {"format", str_format},
      {"format_map", str_format_map},
  };
  return table;
}

}  // namespace backplane::text::jinja
