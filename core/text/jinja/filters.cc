// Filters on any value: conversions, numbers, JSON, attributes.
#include "core/text/jinja/builtins.h"

#include <cmath>

#include "core/text/jinja/budget.h"
#include "core/text/jinja/format.h"
#include "core/text/jinja/json.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/template_error.h"

namespace backplane::text::jinja {
namespace {

Value filter_default(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("default", arguments, {"default_value", "boolean"});
  if (!self.is_undefined() && (!bound.boolean(1, false) || truthy(self))) return self;
  return bound.has(0) ? bound.at(0) : Value::string("");
}

Value filter_length(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("length", arguments, {});
  return Value::integer(static_cast<Int>(length(self)));
}

Value filter_string(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("string", arguments, {});
  return self.is_string() ? self : Value::string(to_text(self));
}

Value filter_safe(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("safe", arguments, {});
  return Value::string(to_text(self), true);
}

Value filter_escape(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("escape", arguments, {});
  return self.is_safe() ? self : Value::string(escape_html(to_text(self)), true);
}

Value filter_forceescape(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("forceescape", arguments, {});
  return Value::string(escape_html(to_text(self)), true);
}

// int(): of text, also what is written as a float ("42.23" is 42); else the default.
Value filter_int(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("int", arguments, {"default", "base"});
  if (self.is_undefined()) fail(self.why_undefined());
  Value otherwise = bound.has(0) ? bound.at(0) : Value::integer(0);
  if (self.is_integral()) return Value::integer(self.as_int());
  double real = 0;
  if (self.is(Kind::kFloat)) {
    real = self.as_float();
  } else if (self.is_string()) {
    auto base = static_cast<int>(clamp_int(bound.integer(1, 10), -1, 37));
    bool valid_base = base == 0 || (base >= 2 && base <= 36);
    if (auto whole = valid_base ? parse_int(self.as_string(), base) : std::nullopt) return Value::integer(*whole);
    auto parsed = parse_float(self.as_string());
    if (!parsed) return otherwise;
    real = *parsed;
  } else {
    return otherwise;
  }
  return std::isfinite(real) ? Value::integer(int_of_float(real)) : otherwise;
}

Value filter_float(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("float", arguments, {"default"});
  if (self.is_undefined()) fail(self.why_undefined());
  if (self.is_number()) return Value::real(self.as_float());
  auto parsed = self.is_string() ? parse_float(self.as_string()) : std::nullopt;
  if (parsed) return Value::real(*parsed);
  return bound.has(0) ? bound.at(0) : Value::real(0);
}

Value filter_abs(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("abs", arguments, {});
  if (self.is(Kind::kFloat)) return Value::real(std::abs(self.as_float()));
  if (self.is_undefined()) fail(self.why_undefined());
  if (!self.is_integral()) fail("bad operand type for abs(): '" + type_name(self) + "'");
  return self.as_int() < 0 ? negate(self) : Value::integer(self.as_int());
}

Value filter_round(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("round", arguments, {"precision", "method"});
  std::string method = bound.string(1, "common");
  auto digits = static_cast<int>(clamp_int(bound.integer(0, 0), -400, 400));
  if (method != "common" && method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
  if (self.is_undefined()) fail(self.why_undefined());
  if (!self.is_number()) fail("type " + type_name(self) + " doesn't define __round__ method");
  if (method != "common") {
    double unit = std::pow(10.0, digits);
    double scaled = self.as_float() * unit;
    return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
  }
  if (self.is(Kind::kFloat)) return Value::real(round_to(self.as_float(), digits));
  if (digits >= 0) return Value::integer(self.as_int());
  if (digits < -37) return Value::integer(0);
  // Of an integer, to tens and so on: half goes to the even neighbor.
  Int unit = 1;
  for (int i = digits; i < 0; ++i) unit *= 10;
  Int value = self.as_int();
  Int rest = ((value % unit) + unit) % unit;
  Int low = value - rest;
  bool up = rest > unit - rest || (rest == unit - rest && (low / unit) % 2 != 0);
  return up ? add(Value::integer(low), Value::integer(unit)) : Value::integer(low);
}

Value filter_filesizeformat(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("filesizeformat", arguments, {"binary"});
  bool binary = bound.boolean(0, false);
  auto parsed = self.is_string() ? parse_float(self.as_string()) : std::nullopt;
  if (!parsed && !self.is_number()) fail("could not convert to float: " + repr(self));
  double bytes = parsed ? *parsed : self.as_float();
  double base = binary ? 1024 : 1000;
  if (bytes == 1) return Value::string("1 Byte");
  if (bytes < base) return Value::string(int_text(int_of_float(bytes)) + " Bytes");
  static constexpr const char* kPrefixes = "kMGTPEZY";
  double unit = base;
  int prefix = 0;
  while (prefix < 7 && bytes >= unit * base) {
    unit *= base;
    ++prefix;
  }
  FormatSpec spec = parse_format_spec(".1f");
  std::string text = format_value(Value::real(base * bytes / (unit * base)), spec) + " ";
  text += binary && prefix == 0 ? 'K' : kPrefixes[prefix];
  return Value::string(text + (binary ? "iB" : "B"));
}

Value filter_format(Interpreter&, const Value& self, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  Value format = self.is_string() ? self : Value::string(to_text(self));
  if (arguments.named.empty()) {
    return Value::string(format_percent(format, Value::tuple(arguments.positional)), format.is_safe());
  }
  Dict named;
  for (const auto& [name, value] : arguments.named) named.set(Value::string(name), value);
  return Value::string(format_percent(format, Value::dict(std::move(named))), format.is_safe());
}

// obj|attr("name"): like obj.name, but never obj["name"].
Value filter_attr(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("attr", arguments, {"name"}, 1);
  std::string name = bound.string(0, "");
  if (self.is(Kind::kDict) && !name.starts_with("__") && !find_method(self, name)) {
    Value found = get_attribute(Value::dict(Dict()), name);  // refuses the changing methods, finds nothing else
    return found.is_undefined() ? found : Value::undefined("'dict object' has no attribute '" + name + "'");
  }
  return get_attribute(self, name);
}

// As transformers define it: tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False).
Value filter_tojson(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.boolean(0, false);
  style.sort_keys = bound.boolean(3, false);
  if (!bound.is_none(1)) {
    style.multiline = true;
    style.item_separator = ",";
    if (bound.at(1).is_string()) {
      style.indent = bound.at(1).as_string();
    } else {
      append_repeated(style.indent, " ", static_cast<std::uint64_t>(clamp_int(bound.integer(1, 0), 0, INT32_MAX)));
    }
  }
  if (!bound.is_none(2)) {
    Elements separators(bound.at(2));
    bool two_strings =
        separators.all().size() == 2 && separators.all()[0].is_string() && separators.all()[1].is_string();
    if (!two_strings) fail("tojson() separators must be two strings");
    style.item_separator = separators.all()[0].as_string();
    style.key_separator = separators.all()[1].as_string();
  }
  return Value::string(to_json(self, style));
}

const NativeTable& value_filters() {
  static const NativeTable table = {
      {"abs", filter_abs},         {"attr", filter_attr},
      {"count", filter_length},    {"d", filter_default},
      {"default", filter_default}, {"e", filter_escape},
      {"escape", filter_escape},   {"filesizeformat", filter_filesizeformat},
      {"float", filter_float},     {"forceescape", filter_forceescape},
      {"format", filter_format},   {"int", filter_int},
      {"length", filter_length},   {"round", filter_round},
      {"safe", filter_safe},       {"string", filter_string},
      {"tojson", filter_tojson},
  };
  return table;
}

}  // namespace

NativeCode find_filter(std::string_view name) {
  for (const NativeTable* table : {&value_filters(), &text_filters(), &sequence_filters()}) {
    if (auto found = table->find(name); found != table->end()) return found->second;
  }
  return nullptr;
}

}  // namespace backplane::text::jinja
