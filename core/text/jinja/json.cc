#include "core/text/jinja/json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/text/jinja/budget.h"
#include "core/text/jinja/limits.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/template_error.h"
#include "core/text/jinja/unicode.h"

namespace backplane::text::jinja {
namespace {

using Json = nlohmann::ordered_json;

Value convert(const Json& json, int depth) {
  if (depth > kMaxValueDepth) fail("the variables are nested too deeply");
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<std::int64_t>());
    case Json::value_t::number_unsigned:
      return Value::integer(static_cast<Int>(json.get<std::uint64_t>()));
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::string:
      return Value::string(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      Values items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(convert(item, depth + 1));
      return Value::list(std::move(items));
    }
    case Json::value_t::object: {
      Dict items;
      for (const auto& [key, item] : json.items()) items.set(Value::string(key), convert(item, depth + 1));
      return Value::dict(std::move(items));
    }
    default:
      return {};
  }
}

class Writer {
 public:
  explicit Writer(const JsonStyle& style) : style_(style) {}

  std::string run(const Value& value) {
    write(value, 0);
    return std::move(out_);
  }

 private:
  void write(const Value& value, std::uint64_t level) {
    charge_steps(1);
    switch (value.kind()) {
      case Kind::kNone:
        return append_charged(out_, "null");
      case Kind::kString:
        return write_string(value.as_string());
      case Kind::kList:
      case Kind::kTuple:
        return write_list(value.items(), level);
      case Kind::kDict:
        return write_dict(value.as_dict(), level);
      case Kind::kBool:
      case Kind::kInt:
      case Kind::kFloat:
        return append_charged(out_, number_text(value));
      default:
        fail("Object of type " + type_name(value) + " is not JSON serializable");
    }
  }

  static std::string number_text(const Value& value) {
    if (value.is(Kind::kBool)) return value.as_bool() ? "true" : "false";
    if (value.is(Kind::kInt)) return int_text(value.as_int());
    double number = value.as_float();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return float_repr(number);
  }

  void new_line(std::uint64_t level) {
    if (!style_.multiline) return;
    append_charged(out_, "\n");
    append_repeated(out_, style_.indent, level);
  }

  void write_list(const Values& items, std::uint64_t level) {
    if (items.empty()) return append_charged(out_, "[]");
    append_charged(out_, "[");
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) append_charged(out_, style_.item_separator);
      new_line(level + 1);
      write(items[i], level + 1);
    }
    new_line(level);
    append_charged(out_, "]");
  }

  void write_dict(const Dict& dict, std::uint64_t level) {
    if (dict.size() == 0) return append_charged(out_, "{}");
    std::vector<const Dict::Entry*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [](auto* a, auto* b) { return less(a->first, b->first); });
    }
    append_charged(out_, "{");
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) append_charged(out_, style_.item_separator);
      new_line(level + 1);
      write_key(entries[i]->first);
      append_charged(out_, style_.key_separator);
      write(entries[i]->second, level + 1);
    }
    new_line(level);
    append_charged(out_, "}");
  }

  void write_key(const Value& key) {
    if (key.is_string()) return write_string(key.as_string());
    if (!key.is_none() && !key.is_number()) {
      fail("keys must be str, int, float, bool or None, not " + type_name(key));
    }
    write_string(key.is_none() ? "null" : number_text(key));
  }

  void write_string(std::string_view text) {
    charge_bytes(text.size() + 2);
    out_.push_back('"');
    for (std::size_t at = 0; at < text.size();) {
      std::size_t start = at;
      char32_t c = next_code_point(text, at);
      static constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b";
      static constexpr std::string_view kLetters = "\"\\nrtfb";
      auto escape = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
      if (escape != std::string_view::npos) {
        out_.push_back('\\');
        out_.push_back(kLetters[escape]);
      } else if (c < 0x20 || (style_.ensure_ascii && c >= 0x7f && c <= 0x10ffff)) {
        write_escaped(c);
      } else {
        out_.append(text.substr(start, at - start));
      }
    }
    out_.push_back('"');
  }

  void write_escaped(char32_t c) {
    charge_bytes(12);
    auto unit = [&](char32_t u) {
      out_ += "\\u";
      for (int shift = 12; shift >= 0; shift -= 4) out_.push_back("0123456789abcdef"[(u >> shift) & 15]);
    };
    if (c < 0x10000) return unit(c);
    unit(0xd800 + ((c - 0x10000) >> 10));
    unit(0xdc00 + ((c - 0x10000) & 0x3ff));
  }

  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

Value value_of_json(const Json& json) { return convert(json, 1); }

std::string to_json(const Value& value, const JsonStyle& style) { return Writer(style).run(value); }

}  // namespace backplane::text::jinja
