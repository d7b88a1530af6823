#include "core/text/jinja/number.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "core/text/jinja/template_error.h"
#include "core/text/jinja/unicode.h"

namespace backplane::text::jinja {
namespace {

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

int digit_value(char c) {
  if (is_ascii_digit(c)) return c - '0';
  char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
}

// Takes a base prefix off; gives the base that holds, or 0 if the text has none and base was 0 (so 10).
int take_prefix(std::string_view& text, int base) {
  if (text.size() > 2 && text[0] == '0') {
    char mark = static_cast<char>(text[1] | 0x20);
    int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == 0 || base == marked)) {
      text.remove_prefix(text[2] == '_' ? 3 : 2);
      return marked;
    }
  }
  return base == 0 ? 10 : base;
}

// Underscores may stand only between two digits.
bool drop_underscores(std::string_view text, std::string& out) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
      continue;
    }
    bool between = i > 0 && i + 1 < text.size() && is_ascii_digit(text[i - 1]) && is_ascii_digit(text[i + 1]);
    if (!between) return false;
  }
  return true;
}

}  // namespace

std::string int_text(Int value, int base) {
  bool negative = value < 0;
  UnsignedInt rest = negative ? -static_cast<UnsignedInt>(value) : static_cast<UnsignedInt>(value);
  std::string text;
  do {
    text.push_back("0123456789abcdef"[static_cast<int>(rest % static_cast<unsigned>(base))]);
    rest /= static_cast<unsigned>(base);
  } while (rest != 0);
  if (negative) text.push_back('-');
  std::reverse(text.begin(), text.end());
  return text;
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  std::size_t e = text.find('e');
  int exponent = 0;
  std::string_view digits_of_exponent = text.substr(e + 1);
  if (digits_of_exponent[0] == '+') digits_of_exponent.remove_prefix(1);
  std::from_chars(digits_of_exponent.data(), digits_of_exponent.data() + digits_of_exponent.size(), exponent);
  if (exponent < -4 || exponent >= 16) return std::string(text);
  end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  std::string fixed(buffer, end);
  if (fixed.find('.') == std::string::npos) fixed += ".0";
  return fixed;
}

std::optional<Int> parse_int(std::string_view text, int base) {
  text = strip(text);
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  base = take_prefix(text, base);
  Int value = 0;
  bool after_digit = false;
  for (char c : text) {
    if (c == '_' && after_digit) {
      after_digit = false;
      continue;
    }
    int digit = digit_value(c);
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, static_cast<Int>(base), &value) ||
        __builtin_add_overflow(value, static_cast<Int>(digit), &value)) {
      fail("integer too large");
    }
    after_digit = true;
  }
  if (!after_digit) return std::nullopt;
  return negative ? -value : value;
}

std::optional<double> parse_float(std::string_view text) {
  text = strip(text);
  bool negative = !text.empty() && text[0] == '-';
  if (negative || (!text.empty() && text[0] == '+')) text.remove_prefix(1);
  std::string plain;
  if (!drop_underscores(text, plain)) return std::nullopt;
  // from_chars also takes "nan(chars)" and a second sign, which Python doesn't.
  if (plain.empty() || plain[0] == '-' || plain.find('(') != std::string::npos) return std::nullopt;
  double value = 0;
  auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), value);
  if (end != plain.data() + plain.size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    // Too large or too small: strtod says which of infinity and zero it is.
    value = std::strtod(plain.c_str(), nullptr);
  }
  return negative ? -value : value;
}

double round_to(double value, int digits) {
  if (!std::isfinite(value) || digits > 330) return value;
  if (digits < -310) return 0.0 * value;
  if (digits >= 0) {
    char buffer[700];  // 309 digits before the point and 330 after it
    std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
    return std::strtod(buffer, nullptr);
  }
  double unit = std::pow(10.0, -digits);
  return std::nearbyint(value / unit) * unit;
}

Int int_of_float(double value) {
  if (std::isnan(value)) fail("cannot convert float NaN to integer");
  if (std::isinf(value)) fail("cannot convert float infinity to integer");
  if (std::abs(value) >= 1.7e38) fail("integer too large");
  return static_cast<Int>(value);
}

}  // namespace backplane::text::jinja
