// Filters on text.
#include <algorithm>

#include "core/text/jinja/budget.h"
#include "core/text/jinja/builtins.h"
#include "core/text/jinja/template_error.h"

namespace backplane::text::jinja {
namespace {

template <std::string (*map)(std::string_view)>
Value filter_map_text(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("text filter", arguments, {});
  std::string text = to_text(self);
  charge_steps(text.size() / 16);
  return Value::string(map(text), self.is_safe());
}

// Words begin after white space, hyphens and opening brackets, other than for str.title().
std::string title_words(std::string_view text) {
  std::string out;
  bool first = true;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t start = at;
    char32_t c = next_code_point(text, at);
    bool separates = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    std::string_view letter = text.substr(start, at - start);
    out += separates ? std::string(letter) : first ? to_upper(letter) : to_lower(letter);
    first = separates;
  }
  return out;
}

Value filter_title(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("title", arguments, {});
  std::string text = to_text(self);
  charge_steps(text.size() / 16);
  return Value::string(title_words(text));
}

Value filter_trim(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("trim", arguments, {"chars"});
  if (!bound.is_none(0) && !bound.at(0).is_string()) fail("strip arg must be None or str");
  std::string text = to_text(self);
  return Value::string(std::string(strip_charged(text, Side::kBoth, bound.get(0))), self.is_safe());
}

Value filter_replace(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  Int count = bound.is_none(2) ? -1 : bound.integer(2, -1);
  return Value::string(replace_text(to_text(self), to_text(bound.at(0)), to_text(bound.at(1)), count));
}

Value filter_center(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("center", arguments, {"width"});
  return Value::string(center_text(to_text(self), bound.integer(0, 80), " "), self.is_safe());
}

Value filter_indent(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("indent", arguments, {"width", "first", "blank"});
  if (self.is_undefined()) fail(self.why_undefined());
  if (!self.is_string()) fail("unsupported operand type(s) for +=: '" + type_name(self) + "' and 'str'");
  std::string indent;
  if (bound.has(0) && bound.at(0).is_string()) {
    indent = bound.at(0).as_string();
  } else {
    append_repeated(indent, " ", static_cast<std::uint64_t>(clamp_int(bound.integer(0, 4), 0, INT32_MAX)));
  }
  bool blank = bound.boolean(2, false);
  std::string text = self.as_string() + "\n";
  std::string out = bound.boolean(1, false) ? indent : "";
  bool first = true;
  for (std::string_view line : split_lines(text)) {
    if (!first) append_charged(out, "\n");
    if (!first && (blank || !line.empty())) append_charged(out, indent);
    append_charged(out, line);
    first = false;
  }
  return Value::string(std::move(out), self.is_safe());
}

Value filter_truncate(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  std::string end = bound.string(2, "...");
  Int limit = bound.integer(0, 255);
  Int leeway = bound.is_none(3) ? 5 : bound.integer(3, 5);
  Int end_length = static_cast<Int>(count_code_points(end));
  if (limit < end_length) fail("expected length >= " + int_text(end_length) + ", got " + int_text(limit));
  if (leeway < 0) fail("expected leeway >= 0, got " + int_text(leeway));
  if (!self.is_string()) {
    // Whatever has a length passes while it is short enough.
    if (static_cast<Int>(length(self)) - leeway <= limit) return self;
    fail("'" + type_name(self) + "' object can't be truncated");
  }
  std::vector<std::string_view> letters = charged_code_points(self.as_string());
  // Compared in this way so that no huge argument overflows.
  if (static_cast<Int>(letters.size()) - leeway <= limit) return self;
  std::size_t kept = 0;
  for (Int i = 0; i < limit - end_length; ++i) kept += letters[static_cast<std::size_t>(i)].size();
  std::string text = self.as_string().substr(0, kept);
  if (!bound.boolean(1, false)) {
    std::size_t space = text.rfind(' ');
    if (space != std::string::npos) text.resize(space);
  }
  return Value::string(text + end);
}

Value filter_wordcount(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("wordcount", arguments, {});
  std::string text = to_text(self);
  charge_steps(text.size() / 16);
  Int words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    bool word = is_word(next_code_point(text, at));
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value::integer(words);
}

std::string quote_url(std::string_view text, bool query) {
  std::string out;
  charge_bytes(text.size() * 3);
  for (char c : text) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !query);
    if (plain) {
      out.push_back(c);
    } else if (c == ' ' && query) {
      out.push_back('+');
    } else {
      auto byte = static_cast<unsigned char>(c);
      out.push_back('%');
      out.push_back("0123456789ABCDEF"[byte >> 4]);
      out.push_back("0123456789ABCDEF"[byte & 15]);
    }
  }
  return out;
}

Value filter_urlencode(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("urlencode", arguments, {});
  if (self.is_string() || !is_iterable(self)) return Value::string(quote_url(to_text(self), false));
  std::string out;
  auto pair = [&](const Value& key, const Value& value) {
    if (!out.empty()) out += "&";
    append_charged(out, quote_url(to_text(key), true) + "=" + quote_url(to_text(value), true));
  };
  if (self.is(Kind::kDict)) {
    for (const auto& [key, value] : self.as_dict().entries()) pair(key, value);
  } else {
    for (const Value& item : Elements(self)) {
      Elements parts(item);
      if (parts.all().size() != 2) fail("urlencode needs pairs");
      pair(parts.all()[0], parts.all()[1]);
    }
  }
  return Value::string(std::move(out));
}

}  // namespace

const NativeTable& text_filters() {
  static const NativeTable table = {
      {"capitalize", filter_map_text<to_capitalized>},
      {"center", filter_center},
      {"indent", filter_indent},
      {"lower", filter_map_text<to_lower>},
      {"replace", filter_replace},
      {"title", filter_title},
      {"trim", filter_trim},
      {"truncate", filter_truncate},
      {"upper", filter_map_text<to_upper>},
      {"urlencode", filter_urlencode},
      {"wordcount", filter_wordcount},
  };
  return table;
}

}  // namespace backplane::text::jinja
