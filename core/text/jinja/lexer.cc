#include "core/text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "core/text/jinja/template_error.h"
#include "core/text/jinja/unicode.h"
#include "core/text/jinja/value.h"

namespace backplane::text::jinja {
namespace {

constexpr std::string_view kEscapes = "\\'\"abfnrtv";
constexpr std::string_view kEscaped = "\\'\"\a\b\f\n\r\t\v";

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }

// \r\n and \r count as \n; one newline at the very end isn't part of the template.
std::string normalize(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text.push_back(source[i]);
      continue;
    }
    text.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_text_and_tag();
    add(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fault(std::string message) const { throw SyntaxFault{std::move(message), line_}; }

  [[noreturn]] void unexpected_char() const {
    std::size_t end = at_;
    next_code_point(source_, end);
    std::string c = repr(Value::string(source_.substr(at_, end - at_)));
    fault("unexpected char " + c + " at " +
          std::to_string(count_code_points(std::string_view(source_).substr(0, at_))));
  }

  bool starts(std::string_view what) const { return std::string_view(source_).substr(at_, what.size()) == what; }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }

  void add(TokenType type, std::string_view text) { tokens_.push_back({type, std::string(text), line_}); }

  void advance(std::size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes), '\n'));
    at_ += bytes;
  }

  void skip_space() {
    std::string_view rest = std::string_view(source_).substr(at_);
    advance(rest.size() - strip(rest, Side::kLeft).size());
  }

  // Where the next tag begins, or the end of the source.
  std::size_t find_tag() const {
    for (std::size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] == '{' && (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#')) return i;
    }
    return source_.size();
  }

  // The text before a tag of this sign, after what the tag takes off it.
  std::string_view trimmed(std::string_view text, char sign, bool variable) const {
    if (sign == '-') return strip(text, Side::kRight);
    if (sign == '+' || variable) return text;
    std::size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos) {
      bool line_starts = at_ == 0 || source_[at_ - 1] == '\n';
      return line_starts && strip(text).empty() ? std::string_view() : text;
    }
    std::string_view tail = text.substr(newline + 1);
    return strip(tail).empty() ? text.substr(0, newline + 1) : text;
  }

  void read_text_and_tag() {
    std::size_t tag = find_tag();
    if (tag == source_.size()) {
      add(TokenType::kData, std::string_view(source_).substr(at_));
      advance(tag - at_);
      return;
    }
    char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    bool is_signed = sign == '-' || sign == '+';
    char kind = source_[tag + 1];
    std::string_view text =
        trimmed(std::string_view(source_).substr(at_, tag - at_), is_signed ? sign : ' ', kind == '{');
    if (!text.empty()) add(TokenType::kData, text);
    advance(tag - at_ + 2 + (is_signed ? 1 : 0));
    if (kind == '#') {
      read_comment();
    } else if (kind == '{') {
      add(TokenType::kVariableBegin, "");
      read_tag("}}", TokenType::kVariableEnd);
    } else if (!read_raw()) {
      add(TokenType::kBlockBegin, "");
      read_tag("%}", TokenType::kBlockEnd);
    }
  }

  // What follows a closing delimiter of this sign and belongs to it.
  void finish_tag(char sign, bool trims_newline) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && trims_newline && peek() == '\n') {
      advance(1);
    }
  }

  void read_comment() {
    std::size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fault("Missing end of comment tag");
    char sign = end > at_ ? source_[end - 1] : ' ';
    advance(end - at_ + 2);
    finish_tag(sign, true);
  }

  // The end of `{% word %}` whose inside begins at `from`; the sign before its %} goes to `sign`.
  std::optional<std::size_t> match_word_tag(std::size_t from, std::string_view word, char& sign) const {
    std::string_view rest = strip(std::string_view(source_).substr(from), Side::kLeft);
    if (rest.substr(0, word.size()) != word) return std::nullopt;
    rest = strip(rest.substr(word.size()), Side::kLeft);
    sign = rest.empty() ? ' ' : rest[0];
    if (sign == '-' || sign == '+') rest.remove_prefix(1);
    if (rest.substr(0, 2) != "%}") return std::nullopt;
    return source_.size() - rest.size() + 2;
  }

  // After "{%": reads a whole raw block if this is one.
  bool read_raw() {
    char sign = ' ';
    auto inside = match_word_tag(at_, "raw", sign);
    if (!inside || sign == '+') return false;
    advance(*inside - at_);
    finish_tag(sign, false);
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 2)) {
      char open = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
      bool is_signed = open == '-' || open == '+';
      auto end = match_word_tag(tag + (is_signed ? 3 : 2), "endraw", sign);
      if (!end) continue;
      std::string_view text = std::string_view(source_).substr(at_, tag - at_);
      text = trimmed(text, is_signed ? open : ' ', false);
      if (!text.empty()) add(TokenType::kData, text);
      advance(*end - at_);
      finish_tag(sign, true);
      return true;
    }
    fault("Missing end of raw directive");
  }

  void read_tag(std::string_view close, TokenType end_type) {
    std::string open_brackets;  // the closing ones that are due
    while (true) {
      if (open_brackets.empty() && read_tag_end(close, end_type)) return;
      if (at_ >= source_.size()) return;  // the parser reports what is missing
      std::size_t position = at_;
      if (is_space(next_code_point(source_, position))) {
        skip_space();
      } else if (!read_number() && !read_name() && !read_string()) {
        read_operator(open_brackets);
      }
    }
  }

  bool read_tag_end(std::string_view close, TokenType type) {
    char sign = peek();
    bool block = type == TokenType::kBlockEnd;
    bool is_signed = (sign == '-' || (sign == '+' && block)) && std::string_view(source_).substr(at_ + 1, 2) == close;
    if (!is_signed && !starts(close)) return false;
    add(type, "");
    advance(is_signed ? 3 : 2);
    finish_tag(is_signed ? sign : ' ', block);
    return true;
  }

  // Length of (digit _)* digit from `from`, 0 if there is no digit.
  std::size_t digits_at(std::size_t from) const {
    std::size_t i = from;
    while (i < source_.size() &&
           (is_digit_char(source_[i]) || (source_[i] == '_' && i > from && is_digit_char(source_[i - 1]) &&
                                          i + 1 < source_.size() && is_digit_char(source_[i + 1])))) {
      ++i;
    }
    return i - from;
  }

  bool read_number() {
    if (!is_digit_char(peek())) return false;
    if (!(at_ > 0 && source_[at_ - 1] == '.') && read_float()) return true;
    std::size_t count = digits_at(at_);
    char mark = static_cast<char>(peek(1) | 0x20);
    if (peek() == '0' && (mark == 'x' || mark == 'o' || mark == 'b')) {
      std::size_t i = at_ + 2;
      auto in_base = [&](char c) {
        char lower = static_cast<char>(c | 0x20);
        if (mark == 'x') return is_digit_char(c) || (lower >= 'a' && lower <= 'f');
        return c >= '0' && c <= (mark == 'o' ? '7' : '1');
      };
      while (i < source_.size() &&
             (in_base(source_[i]) || (source_[i] == '_' && i + 1 < source_.size() && in_base(source_[i + 1]))))
        ++i;
      if (i > at_ + 2) count = i - at_;
    } else if (peek() == '0') {
      // A leading zero is a number of its own unless only zeros follow, as in Python.
      count = 1;
      while (peek(count) == '0' || (peek(count) == '_' && peek(count + 1) == '0')) ++count;
    }
    Token token{TokenType::kInt, source_.substr(at_, count), line_};
    try {
      token.integer = parse_int(token.text, 0).value_or(0);
    } catch (const Fault& e) {
      fault(e.what());
    }
    tokens_.push_back(token);
    advance(count);
    return true;
  }

  bool read_float() {
    std::size_t end = at_ + digits_at(at_);
    bool fraction = end < source_.size() && source_[end] == '.' && digits_at(end + 1) > 0;
    if (fraction) end += 1 + digits_at(end + 1);
    bool exponent = false;
    if (end < source_.size() && (source_[end] | 0x20) == 'e') {
      std::size_t digits = end + 1;
      if (digits < source_.size() && (source_[digits] == '+' || source_[digits] == '-')) ++digits;
      exponent = digits_at(digits) > 0;
      if (exponent) end = digits + digits_at(digits);
    }
    if (!fraction && !exponent) return false;
    Token token{TokenType::kFloat, source_.substr(at_, end - at_), line_};
    token.real = parse_float(token.text).value_or(0);
    tokens_.push_back(token);
    advance(end - at_);
    return true;
  }

  bool read_name() {
    std::size_t end = at_;
    for (std::size_t next = at_; next < source_.size(); end = next) {
      if (!is_word(next_code_point(source_, next))) break;
    }
    if (end == at_) return false;
    add(TokenType::kName, std::string_view(source_).substr(at_, end - at_));
    advance(end - at_);
    return true;
  }

  bool read_string() {
    char quote = peek();
    if (quote != '"' && quote != '\'') return false;
    std::string value;
    std::size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote) {
      if (source_[i] == '\\' && i + 1 < source_.size()) {
        i = read_escape(i + 1, value);
      } else {
        value.push_back(source_[i++]);
      }
    }
    if (i >= source_.size()) unexpected_char();
    add(TokenType::kString, value);
    advance(i + 1 - at_);
    return true;
  }

  // `i` is behind a backslash; gives the position after the escape.
  std::size_t read_escape(std::size_t i, std::string& out) const {
    char c = source_[i];
    if (c == '\n') return i + 1;
    if (auto found = kEscapes.find(c); found != std::string_view::npos) {
      out.push_back(kEscaped[found]);
      return i + 1;
    }
    if (c >= '0' && c <= '7') {
      char32_t code = 0;
      for (int n = 0; n < 3 && i < source_.size() && source_[i] >= '0' && source_[i] <= '7'; ++n, ++i) {
        code = code * 8 + static_cast<char32_t>(source_[i] - '0');
      }
      append_code_point(out, code);
      return i;
    }
    if (c == 'N') fault("named characters (\\N{...}) are not supported");
    std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {
      out.push_back('\\');
      return i;
    }
    auto code = read_hex(i + 1, digits);
    i += 1 + digits;
    // Two escapes that make a surrogate pair mean one character.
    if (code >= 0xd800 && code < 0xdc00 && std::string_view(source_).substr(i, 2) == "\\u") {
      auto low = read_hex(i + 2, 4);
      if (low >= 0xdc00 && low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        i += 6;
      }
    }
    if (code > 0x10ffff) fault("illegal Unicode character");
    append_code_point(out, code >= 0xd800 && code < 0xe000 ? 0xfffd : code);
    return i;
  }

  char32_t read_hex(std::size_t from, std::size_t digits) const {
    std::string text = from + digits <= source_.size() ? source_.substr(from, digits) : "";
    bool hex = !text.empty() && text.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
    if (!hex) fault("truncated escape");
    return static_cast<char32_t>(std::stoul(text, nullptr, 16));
  }

  void read_operator(std::string& open_brackets) {
    static constexpr std::array<std::string_view, 25> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                    ">",  "<",  "=",  ".",  ":",  "|",  ","};
    auto found = std::find_if(kOperators.begin(), kOperators.end(), [&](std::string_view op) { return starts(op); });
    if (found == kOperators.end()) {
      unexpected_char();
    }
    std::string op(*found);
    if (op == "(" || op == "[" || op == "{") open_brackets.push_back(op == "(" ? ')' : op == "[" ? ']' : '}');
    if (op == ")" || op == "]" || op == "}") {
      if (open_brackets.empty()) fault("unexpected '" + op + "'");
      if (open_brackets.back() != op[0]) fault("unexpected '" + op + "', expected '" + open_brackets.back() + "'");
      open_brackets.pop_back();
    }
    add(TokenType::kOperator, op);
    advance(op.size());
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::kData:
      return "template data / text";
    case TokenType::kVariableBegin:
      return "begin of print statement";
    case TokenType::kVariableEnd:
      return "end of print statement";
    case TokenType::kBlockBegin:
      return "begin of statement block";
    case TokenType::kBlockEnd:
      return "end of statement block";
    case TokenType::kEnd:
      return "end of template";
    case TokenType::kString:
      return "string";
    case TokenType::kInt:
      return "integer";
    case TokenType::kFloat:
      return "float";
    default:
      return token.text;
  }
}

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace backplane::text::jinja
