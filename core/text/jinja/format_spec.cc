// The format specification: "<8", "+.2f", "08,d" and so on.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/text/jinja/budget.h"
#include "core/text/jinja/format.h"
#include "core/text/jinja/template_error.h"
#include "core/text/jinja/unicode.h"

namespace backplane::text::jinja {
namespace {

constexpr std::int64_t kMaxPrecision = 400;  // digits of a float

bool is_align(std::string_view c) { return c == "<" || c == ">" || c == "^" || c == "="; }

std::int64_t read_digits(std::string_view text, std::size_t& at) {
  std::int64_t value = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    value = std::min<std::int64_t>(value * 10 + (text[at++] - '0'), INT32_MAX);
  }
  return value;
}

std::string pad(std::string_view sign, std::string_view body, const FormatSpec& spec, char default_align) {
  char align = spec.align ? spec.align : default_align;
  auto size = static_cast<std::int64_t>(count_code_points(sign) + count_code_points(body));
  std::int64_t missing = std::max<std::int64_t>(0, spec.width - size);
  std::int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string out;
  if (align == '=') out.append(sign);
  append_repeated(out, spec.fill, static_cast<std::uint64_t>(left));
  if (align != '=') out.append(sign);
  append_charged(out, body);
  append_repeated(out, spec.fill, static_cast<std::uint64_t>(missing - left));
  return out;
}

// Puts a mark between each three digits of the whole part.
std::string group_digits(std::string digits, char mark) {
  std::size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (std::size_t at = end; at > 3;) {
    at -= 3;
    digits.insert(at, 1, mark);
  }
  return digits;
}

std::string sign_text(bool negative, char sign) {
  if (negative) return "-";
  return sign == '-' ? "" : std::string(1, sign);
}

std::string print_float(double value, char type, std::int64_t precision, bool alternate) {
  char buffer[800];
  std::string format = alternate ? "%#.*" : "%.*";
  format += type;
  std::snprintf(buffer, sizeof buffer, format.c_str(), static_cast<int>(precision), value);
  return buffer;
}

std::string format_float(double value, const FormatSpec& spec) {
  bool negative = std::signbit(value) && !std::isnan(value);
  double magnitude = std::abs(value);
  std::int64_t precision = std::min(spec.precision, kMaxPrecision);
  std::string body;
  if (std::isinf(value) || std::isnan(value)) {
    body = std::isnan(value) ? "nan" : "inf";
    if (spec.type == '%') body += '%';
  } else if (spec.type == 0) {
    body = precision < 0 ? float_repr(magnitude)
                         : print_float(magnitude, 'g', std::max<std::int64_t>(precision, 1), false);
    bool plain = body.find_first_of(".e") == std::string::npos;
    if (plain) body += ".0";
  } else if (spec.type == '%') {
    body = print_float(magnitude * 100, 'f', precision < 0 ? 6 : precision, spec.alternate) + "%";
  } else {
    char type = spec.type == 'n' ? 'g' : spec.type;
    body = print_float(magnitude, type, precision < 0 ? 6 : precision, spec.alternate);
  }
  if (spec.group) body = group_digits(std::move(body), spec.group);
  return pad(sign_text(negative, spec.sign), body, spec, '>');
}

std::string format_int(Int value, const FormatSpec& spec) {
  if (spec.precision >= 0) fail("Precision not allowed in integer format specifier");
  std::string sign = sign_text(value < 0, spec.sign);
  if (spec.type == 'c') {
    if (value < 0 || value > 0x10ffff) fail("%c arg not in range(0x110000)");
    std::string text;
    append_code_point(text, static_cast<char32_t>(value));
    return pad("", text, spec, '<');
  }
  int base = spec.type == 'x' || spec.type == 'X' ? 16 : spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 10;
  std::string body = int_text(value, base);
  if (value < 0) body.erase(0, 1);
  if (spec.type == 'X') body = to_upper(body);
  if (spec.group) body = group_digits(std::move(body), spec.group);
  if (spec.alternate && base != 10) sign += std::string("0") + spec.type;
  return pad(sign, body, spec, '>');
}

std::string format_string(std::string_view text, const FormatSpec& spec) {
  if (spec.align == '=') fail("'=' alignment not allowed in string format specifier");
  if (spec.precision >= 0) {
    std::size_t end = 0;
    for (std::int64_t i = 0; i < spec.precision && end < text.size(); ++i) next_code_point(text, end);
    text = text.substr(0, end);
  }
  return pad("", text, spec, '<');
}

}  // namespace

FormatSpec parse_format_spec(std::string_view text) {
  FormatSpec spec;
  std::size_t at = 0;
  if (!text.empty()) {
    std::size_t after_fill = 0;
    next_code_point(text, after_fill);
    if (is_align(text.substr(after_fill, 1))) {
      spec.fill = std::string(text.substr(0, after_fill));
      spec.align = text[after_fill];
      at = after_fill + 1;
    } else if (is_align(text.substr(0, 1))) {
      spec.align = text[0];
      at = 1;
    }
  }
  auto next_is = [&](std::string_view set) { return at < text.size() && set.find(text[at]) != std::string_view::npos; };
  if (next_is("+- ")) spec.sign = text[at++];
  if (next_is("#")) {
    spec.alternate = true;
    ++at;
  }
  if (next_is("0")) {
    if (!spec.align) {
      spec.align = '=';
      spec.fill = "0";
    }
    ++at;
  }
  spec.width = read_digits(text, at);
  if (next_is(",_")) spec.group = text[at++];
  if (next_is(".")) {
    std::size_t digits = ++at;
    spec.precision = read_digits(text, at);
    if (at == digits) fail("Format specifier missing precision");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) fail("Invalid format specifier");
  return spec;
}

std::string format_value(const Value& value, const FormatSpec& spec) {
  auto type_in = [&](std::string_view set) { return spec.type == 0 || set.find(spec.type) != std::string_view::npos; };
  if (value.is_integral() && !(value.is(Kind::kBool) && spec.type == 0)) {
    if (type_in("bcdoxXn")) return format_int(value.as_int(), spec);
    if (type_in("eEfFgG%")) return format_float(value.as_float(), spec);
  } else if (value.is(Kind::kFloat) && type_in("eEfFgG%n")) {
    return format_float(value.as_float(), spec);
  } else if (type_in("s") && !value.is(Kind::kFloat)) {
    return format_string(to_text(value), spec);
  }
  fail(std::string("Unknown format code '") + spec.type + "' for object of type '" + type_name(value) + "'");
}

}  // namespace backplane::text::jinja
