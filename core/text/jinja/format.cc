#include "core/text/jinja/format.h"

#include "core/text/jinja/budget.h"
#include "core/text/jinja/builtins.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/template_error.h"
#include "core/text/jinja/unicode.h"

namespace backplane::text::jinja {
namespace {

// One run through a % format.
class PercentFormatter {
 public:
  PercentFormatter(const Value& format, const Value& arguments)
      : format_(format.as_string()), escapes_(format.is_safe()), arguments_(arguments) {}

  std::string run() {
    std::string out;
    while (at_ < format_.size()) {
      std::size_t mark = format_.find('%', at_);
      append_charged(out, format_.substr(at_, mark - at_));
      if (mark == std::string_view::npos) break;
      at_ = mark + 1;
      append_charged(out, placeholder());
    }
    bool tuple = arguments_.is(Kind::kTuple);
    bool all_used = tuple ? used_ == arguments_.items().size() : used_ == 1 || accepts_unused();
    if (!all_used && !by_name_) fail("not all arguments converted during string formatting");
    return out;
  }

 private:
  // Python lets a mapping or list go unused, as it could have been addressed by name.
  bool accepts_unused() const {
    return arguments_.is(Kind::kDict) || arguments_.is(Kind::kList) || arguments_.is_undefined();
  }

  const Value& next_argument() {
    if (!arguments_.is(Kind::kTuple)) {
      if (used_++ > 0) fail("not enough arguments for format string");
      return arguments_;
    }
    if (used_ >= arguments_.items().size()) fail("not enough arguments for format string");
    return arguments_.items()[used_++];
  }

  Value argument_named(std::string_view name) {
    if (!arguments_.is(Kind::kDict)) fail("format requires a mapping");
    const Value* found = arguments_.as_dict().find(name);
    if (!found) fail("'" + std::string(name) + "'");
    by_name_ = true;
    return *found;
  }

  std::int64_t read_size() {
    if (at_ < format_.size() && format_[at_] == '*') {
      ++at_;
      const Value& size = next_argument();
      if (!size.is_integral()) fail("* wants int");
      return clamp_int(size.as_int(), 0, INT32_MAX);
    }
    std::int64_t size = 0;
    while (at_ < format_.size() && format_[at_] >= '0' && format_[at_] <= '9') {
      size = std::min<std::int64_t>(size * 10 + (format_[at_++] - '0'), INT32_MAX);
    }
    return size;
  }

  void read_flags(FormatSpec& spec) {
    bool zero = false;
    for (; at_ < format_.size() && std::string_view("-+ #0").find(format_[at_]) != std::string_view::npos; ++at_) {
      char flag = format_[at_];
      if (flag == '-') spec.align = '<';
      if (flag == '+' || (flag == ' ' && spec.sign != '+')) spec.sign = flag;
      if (flag == '#') spec.alternate = true;
      zero = zero || flag == '0';
    }
    if (zero && !spec.align) {
      spec.align = '=';
      spec.fill = "0";
    }
  }

  std::string placeholder() {
    std::optional<Value> named;
    if (at_ < format_.size() && format_[at_] == '(') {
      std::size_t end = format_.find(')', at_);
      if (end == std::string_view::npos) fail("incomplete format key");
      named = argument_named(format_.substr(at_ + 1, end - at_ - 1));
      at_ = end + 1;
    }
    FormatSpec spec;
    read_flags(spec);
    spec.width = read_size();
    if (at_ < format_.size() && format_[at_] == '.') {
      ++at_;
      spec.precision = read_size();
    }
    if (at_ >= format_.size()) fail("incomplete format");
    spec.type = format_[at_++];
    if (spec.type == '%') return "%";
    return convert(named ? *named : next_argument(), spec);
  }

  std::string convert(const Value& value, FormatSpec spec) const {
    std::string_view floats = "eEfFgG";
    std::string_view integers = "diuoxX";
    char type = spec.type;
    if (type == 's' || type == 'r' || type == 'a' || (type == 'c' && value.is_string())) {
      std::string text = type == 'r' || type == 'a' ? repr(value) : to_text(value);
      if (escapes_ && !value.is_safe()) text = escape_html(text);
      spec.type = 's';
      if (spec.align == '=') spec.fill = " ";
      spec.align = spec.align == '<' ? '<' : '>';
      return format_value(Value::string(std::move(text)), spec);
    }
    if (value.is_undefined()) fail(value.why_undefined());
    if (type == 'c' && value.is_integral()) return format_value(value, spec);
    if (floats.find(type) != std::string_view::npos) {
      if (!value.is_number()) fail("must be real number, not " + type_name(value));
      return format_value(Value::real(value.as_float()), spec);
    }
    if (integers.find(type) == std::string_view::npos) {
      fail(std::string("unsupported format character '") + type + "'");
    }
    if (!value.is_number() ||
        (value.is(Kind::kFloat) && std::string_view("oxX").find(type) != std::string_view::npos)) {
      fail(std::string("%") + type + " format: a real number is required, not " + type_name(value));
    }
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    std::int64_t digits = std::exchange(spec.precision, -1);
    Int whole = value.is(Kind::kFloat) ? int_of_float(value.as_float()) : value.as_int();
    if (digits > 0) {
      // A precision of an integer is its least number of digits.
      FormatSpec inner = spec;
      inner.align = '=';
      inner.fill = "0";
      inner.width = digits + (whole < 0 || spec.sign != '-' ? 1 : 0);
      spec.type = 's';
      if (spec.align != '<') spec.align = '>';
      spec.fill = " ";
      return format_value(Value::string(format_value(Value::integer(whole), inner)), spec);
    }
    return format_value(Value::integer(whole), spec);
  }

  std::string_view format_;
  bool escapes_;
  const Value& arguments_;
  std::size_t at_ = 0;
  std::size_t used_ = 0;
  bool by_name_ = false;
};

// One run through a format of str.format().
class BraceFormatter {
 public:
  explicit BraceFormatter(const Arguments& arguments) : arguments_(arguments) {}

  std::string run(std::string_view format, int nesting = 0) {
    if (nesting > 2) fail("Max string recursion exceeded");
    std::string out;
    for (std::size_t at = 0; at < format.size();) {
      char c = format[at];
      if (c != '{' && c != '}') {
        std::size_t end = std::min(format.find_first_of("{}", at), format.size());
        append_charged(out, format.substr(at, end - at));
        at = end;
      } else if (at + 1 < format.size() && format[at + 1] == c) {
        out.push_back(c);
        at += 2;
      } else if (c == '}') {
        fail("Single '}' encountered in format string");
      } else {
        std::size_t end = matching_brace(format, at);
        append_charged(out, field(format.substr(at + 1, end - at - 1), nesting));
        at = end + 1;
      }
    }
    return out;
  }

 private:
  static std::size_t matching_brace(std::string_view format, std::size_t open) {
    int depth = 0;
    for (std::size_t at = open; at < format.size(); ++at) {
      if (format[at] == '{') ++depth;
      if (format[at] == '}' && --depth == 0) return at;
    }
    fail("expected '}' before end of string");
  }

  std::string field(std::string_view text, int nesting) {
    std::size_t name_end = std::min(text.find_first_of("!:"), text.size());
    Value value = look_up(text.substr(0, name_end));
    std::string_view rest = text.substr(name_end);
    if (!rest.empty() && rest[0] == '!') {
      char conversion = rest.size() > 1 ? rest[1] : '\0';
      if (conversion != 'r' && conversion != 's' && conversion != 'a') fail("Unknown conversion specifier");
      value = Value::string(conversion == 's' ? to_text(value) : repr(value));
      rest.remove_prefix(2);
      if (!rest.empty() && rest[0] != ':') fail("expected ':' after conversion specifier");
    }
    if (!rest.empty()) rest.remove_prefix(1);
    std::string spec = run(rest, nesting + 1);
    if (spec.empty()) return to_text(value);
    bool formattable = value.is_number() || value.is_string();
    if (!formattable) fail("unsupported format string passed to " + type_name(value) + ".__format__");
    return format_value(value, parse_format_spec(spec));
  }

  Value look_up(std::string_view path) {
    std::size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = first(path.substr(0, end));
    while (end < path.size()) {
      if (path[end] == '.') {
        std::size_t next = std::min(path.find_first_of(".[", end + 1), path.size());
        value = get_attribute(value, std::string(path.substr(end + 1, next - end - 1)));
        end = next;
      } else {
        std::size_t close = path.find(']', end);
        if (path[end] != '[' || close == std::string_view::npos) fail("Missing ']' in format string");
        std::string key(path.substr(end + 1, close - end - 1));
        auto index = parse_index(key);
        value = get_item(value, index ? Value::integer(*index) : Value::string(key));
        end = close + 1;
      }
    }
    return value;
  }

  static std::optional<Int> parse_index(std::string_view text) {
    if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
    return parse_int(text);
  }

  Value first(std::string_view name) {
    std::optional<Int> index = parse_index(name);
    if (name.empty()) {
      if (numbered_ == Numbering::kByHand)
        fail("cannot switch from manual field specification to automatic field numbering");
      numbered_ = Numbering::kAutomatic;
      index = static_cast<Int>(next_++);
    } else if (index) {
      if (numbered_ == Numbering::kAutomatic)
        fail("cannot switch from automatic field numbering to manual field specification");
      numbered_ = Numbering::kByHand;
    }
    if (index) {
      if (*index >= static_cast<Int>(arguments_.positional.size())) {
        fail("Replacement index " + int_text(*index) + " out of range for positional args tuple");
      }
      return arguments_.positional[static_cast<std::size_t>(*index)];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    fail("'" + std::string(name) + "'");
  }

  enum class Numbering { kNone, kAutomatic, kByHand };

  const Arguments& arguments_;
  Numbering numbered_ = Numbering::kNone;
  std::size_t next_ = 0;
};

}  // namespace

std::string format_percent(const Value& format, const Value& arguments) {
  return PercentFormatter(format, arguments).run();
}

std::string format_braces(std::string_view format, const Arguments& arguments) {
  return BraceFormatter(arguments).run(format);
}

}  // namespace backplane::text::jinja
