#include "core/text/jinja/operators.h"

#include <array>
#include <cmath>

#include "core/text/jinja/budget.h"
#include "core/text/jinja/builtins.h"
#include "core/text/jinja/format.h"
#include "core/text/jinja/template_error.h"
#include "core/text/jinja/unicode.h"

namespace backplane::text::jinja {
namespace {

constexpr std::array<const char*, 7> kBinarySymbols = {"+", "-", "*", "/", "//", "%", "** or pow()"};
constexpr std::array<const char*, 6> kCompareSymbols = {"==", "!=", "<", "<=", ">", ">="};

[[noreturn]] void unsupported_operands(BinaryOp op, const Value& a, const Value& b) {
  fail(std::string("unsupported operand type(s) for ") + kBinarySymbols[static_cast<std::size_t>(op)] + ": '" +
       type_name(a) + "' and '" + type_name(b) + "'");
}

void refuse_undefined(const Value& value) {
  if (value.is_undefined()) fail(value.why_undefined());
}

[[noreturn]] void too_large() { fail("integer too large"); }

Int checked_add(Int a, Int b) {
  if (__builtin_add_overflow(a, b, &a)) too_large();
  return a;
}

Int checked_subtract(Int a, Int b) {
  if (__builtin_sub_overflow(a, b, &a)) too_large();
  return a;
}

Int checked_multiply(Int a, Int b) {
  if (__builtin_mul_overflow(a, b, &a)) too_large();
  return a;
}

Int power(Int base, Int exponent) {
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  for (Int result = 1;;) {
    if (exponent & 1) result = checked_multiply(result, base);
    exponent >>= 1;
    if (exponent == 0) return result;
    base = checked_multiply(base, base);
  }
}

Int floor_divide(Int a, Int b) {
  if (b == -1) return checked_subtract(0, a);
  Int quotient = a / b;
  return a % b != 0 && ((a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

Int modulo(Int a, Int b) {
  if (b == -1) return 0;
  Int rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double float_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

Value integer_binary(BinaryOp op, Int a, Int b) {
  bool divides = op == BinaryOp::kDivide || op == BinaryOp::kFloorDivide || op == BinaryOp::kModulo;
  if (divides && b == 0) {
    fail(op == BinaryOp::kDivide   ? "division by zero"
         : op == BinaryOp::kModulo ? "integer modulo by zero"
                                   : "integer division or modulo by zero");
  }
  switch (op) {
    case BinaryOp::kAdd:
      return Value::integer(checked_add(a, b));
    case BinaryOp::kSubtract:
      return Value::integer(checked_subtract(a, b));
    case BinaryOp::kMultiply:
      return Value::integer(checked_multiply(a, b));
    case BinaryOp::kDivide:
      return Value::real(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOp::kFloorDivide:
      return Value::integer(floor_divide(a, b));
    case BinaryOp::kModulo:
      return Value::integer(modulo(a, b));
    case BinaryOp::kPower:
      break;
  }
  if (b >= 0) return Value::integer(power(a, b));
  if (a == 0) fail("0.0 cannot be raised to a negative power");
  return Value::real(std::pow(static_cast<double>(a), static_cast<double>(b)));
}

Value float_binary(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::real(a + b);
    case BinaryOp::kSubtract:
      return Value::real(a - b);
    case BinaryOp::kMultiply:
      return Value::real(a * b);
    case BinaryOp::kDivide:
      if (b == 0) fail("float division by zero");
      return Value::real(a / b);
    case BinaryOp::kFloorDivide:
      if (b == 0) fail("float floor division by zero");
      return Value::real(std::floor((a - float_modulo(a, b)) / b + 0.5));
    case BinaryOp::kModulo:
      if (b == 0) fail("float modulo");
      return Value::real(float_modulo(a, b));
    case BinaryOp::kPower:
      break;
  }
  if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(b) && std::floor(b) != b) fail("complex numbers are not supported");
  double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) fail("Numerical result out of range");
  return Value::real(result);
}

Value repeat(const Value& value, Int count) {
  std::uint64_t times = count < 0 ? 0 : static_cast<std::uint64_t>(clamp_int(count, 0, INT64_MAX));
  if (value.is_string()) {
    std::string text;
    append_repeated(text, value.as_string(), times);
    return Value::string(std::move(text), value.is_safe());
  }
  const Values& items = value.items();
  std::uint64_t total = 0;
  if (__builtin_mul_overflow(times, std::uint64_t{items.size()} * sizeof(Value), &total)) {
    fail("the template uses too much memory");
  }
  charge_bytes(total);
  Values all;
  all.reserve(total / sizeof(Value));
  for (std::uint64_t i = 0; i < times && !items.empty(); ++i) all.insert(all.end(), items.begin(), items.end());
  return value.is(Kind::kTuple) ? Value::tuple(std::move(all)) : Value::list(std::move(all));
}

Value add_sequences(const Value& a, const Value& b) {
  charge_bytes((a.items().size() + b.items().size()) * sizeof(Value));
  Values all = a.items();
  all.insert(all.end(), b.items().begin(), b.items().end());
  return a.is(Kind::kTuple) ? Value::tuple(std::move(all)) : Value::list(std::move(all));
}

Value add_strings(const Value& a, const Value& b) {
  bool safe = a.is_safe() || b.is_safe();
  auto part = [&](const Value& v) { return safe && !v.is_safe() ? escape_html(v.as_string()) : v.as_string(); };
  charge_bytes(a.as_string().size() + b.as_string().size());
  std::string text = safe ? part(a) : a.as_string();
  text += safe ? part(b) : b.as_string();
  return Value::string(std::move(text), safe);
}

bool less_items(const Values& a, const Values& b) {
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (!equal(a[i], b[i])) return less(a[i], b[i]);
  }
  return a.size() < b.size();
}

bool less_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int();
  auto wide = [](const Value& v) {
    return v.is(Kind::kFloat) ? static_cast<long double>(v.as_float()) : static_cast<long double>(v.as_int());
  };
  return wide(a) < wide(b);
}

bool ordered(CompareOp op, const Value& a, const Value& b) {
  refuse_undefined(a);
  refuse_undefined(b);
  bool numbers = a.is_number() && b.is_number();
  if (!numbers && (a.kind() != b.kind() || !(a.is_string() || a.is_sequence()))) {
    fail(std::string("'") + kCompareSymbols[static_cast<std::size_t>(op)] + "' not supported between instances of '" +
         type_name(a) + "' and '" + type_name(b) + "'");
  }
  auto before = [&](const Value& x, const Value& y) {
    if (numbers) return less_numbers(x, y);
    charge_scan(x.is_string() ? x.as_string().size() : 0);
    return x.is_string() ? x.as_string() < y.as_string() : less_items(x.items(), y.items());
  };
  switch (op) {
    case CompareOp::kLess:
      return before(a, b);
    case CompareOp::kGreater:
      return before(b, a);
    case CompareOp::kLessEqual:
      return before(a, b) || equal(a, b);
    default:
      return before(b, a) || equal(a, b);
  }
}

bool changes_list(std::string_view name) {
  for (std::string_view method : {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"}) {
    if (name == method) return true;
  }
  return false;
}

bool changes_dict(std::string_view name) {
  for (std::string_view method : {"clear", "pop", "popitem", "setdefault", "update"}) {
    if (name == method) return true;
  }
  return false;
}

// What Python's getattr() would find, or what the sandbox puts in its place.
std::optional<Value> find_attribute(const Value& object, const std::string& name) {
  bool refused = name.starts_with("__") || (object.is(Kind::kList) && changes_list(name)) ||
                 (object.is(Kind::kDict) && changes_dict(name));
  if (refused) {
    return Value::undefined("access to attribute '" + name + "' of '" + type_name(object) + "' object is unsafe.");
  }
  if (object.is(Kind::kObject)) return object.as_object()->attribute(name, object);
  return find_method(object, name);
}

// object[key] without falling back to attributes.
std::optional<Value> find_item(const Value& object, const Value& key) {
  if (object.is(Kind::kDict)) {
    if (key.is_sequence() || key.is(Kind::kDict)) return std::nullopt;  // mostly unhashable: not there
    const Value* found = object.as_dict().find(key);
    return found ? std::optional(*found) : std::nullopt;
  }
  if (object.is(Kind::kObject)) return object.as_object()->element(key);
  if (!key.is_integral() || !(object.is_string() || object.is_sequence())) return std::nullopt;
  bool bytes_are_characters = object.is_string() && is_ascii(object.as_string());
  if (object.is_string()) charge_scan(object.as_string().size());
  Int count = static_cast<Int>(bytes_are_characters ? object.as_string().size() : length(object));
  Int at = key.as_int() < 0 ? key.as_int() + count : key.as_int();
  if (at < 0 || at >= count) return std::nullopt;
  auto index = static_cast<std::size_t>(at);
  if (object.is_sequence()) return object.items()[index];
  if (bytes_are_characters) return Value::string(object.as_string().substr(index, 1), object.is_safe());
  std::size_t position = 0;
  while (index-- > 0) next_code_point(object.as_string(), position);
  std::size_t end = position;
  next_code_point(object.as_string(), end);
  return Value::string(object.as_string().substr(position, end - position), object.is_safe());
}

Value not_there(const Value& object, const Value& key) {
  if (key.is_string()) return Value::undefined(described_type(object) + " has no attribute " + repr(key));
  std::string type = object.is_none() ? "None" : type_name(object) + " object";
  return Value::undefined(type + " has no element " + repr(key));
}

Int slice_bound(const Value& bound, Int otherwise, Int count, bool backwards) {
  if (bound.is_none()) return otherwise;
  refuse_undefined(bound);
  if (!bound.is_integral()) fail("slice indices must be integers or None or have an __index__ method");
  Int at = bound.as_int() < 0 ? bound.as_int() + count : bound.as_int();
  Int low = backwards ? -1 : 0;
  return std::clamp(at, low, backwards ? count - 1 : count);
}

// Calls `take` with each index that a slice of a sequence of this size has.
template <typename Take>
void for_slice(std::size_t size, const Value& start, const Value& stop, Int stride, Take take) {
  auto count = static_cast<Int>(size);
  bool backwards = stride < 0;
  Int from = slice_bound(start, backwards ? count - 1 : 0, count, backwards);
  Int to = slice_bound(stop, backwards ? -1 : count, count, backwards);
  stride = std::clamp(stride, -count - 1, count + 1);  // a longer one ends after the first, too
  for (Int i = from; backwards ? i > to : i < to; i += stride) take(static_cast<std::size_t>(i));
}

Value slice_string(const Value& object, const Value& start, const Value& stop, Int stride) {
  const std::string& text = object.as_string();
  std::string out;
  charge_steps(text.size() / 8);
  if (is_ascii(text)) {
    for_slice(text.size(), start, stop, stride, [&](std::size_t i) { out.push_back(text[i]); });
  } else {
    std::vector<std::string_view> letters = charged_code_points(text);
    for_slice(letters.size(), start, stop, stride, [&](std::size_t i) { out += letters[i]; });
  }
  return Value::string(std::move(out), object.is_safe());
}

}  // namespace

Value apply_binary(BinaryOp op, const Value& a, const Value& b) {
  if (op == BinaryOp::kModulo && a.is_string()) return Value::string(format_percent(a, b), a.is_safe());
  refuse_undefined(a);
  refuse_undefined(b);
  if (a.is_integral() && b.is_integral()) return integer_binary(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return float_binary(op, a.as_float(), b.as_float());
  if (op == BinaryOp::kAdd) {
    if (a.is_string() && b.is_string()) return add_strings(a, b);
    if (a.is_sequence() && a.kind() == b.kind()) return add_sequences(a, b);
    if (a.is_string() || a.is_sequence()) {
      std::string type = a.is_string() ? "str" : type_name(a);
      fail("can only concatenate " + type + " (not \"" + type_name(b) + "\") to " + type);
    }
  }
  if (op == BinaryOp::kMultiply) {
    if ((a.is_string() || a.is_sequence()) && b.is_integral()) return repeat(a, b.as_int());
    if ((b.is_string() || b.is_sequence()) && a.is_integral()) return repeat(b, a.as_int());
  }
  unsupported_operands(op, a, b);
}

Value negate(const Value& value) {
  refuse_undefined(value);
  if (value.is(Kind::kFloat)) return Value::real(-value.as_float());
  if (!value.is_integral()) fail("bad operand type for unary -: '" + type_name(value) + "'");
  return integer_binary(BinaryOp::kSubtract, 0, value.as_int());
}

Value positive(const Value& value) {
  refuse_undefined(value);
  if (value.is(Kind::kFloat)) return value;
  if (!value.is_integral()) fail("bad operand type for unary +: '" + type_name(value) + "'");
  return Value::integer(value.as_int());
}

bool compare(CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEqual:
      return equal(a, b);
    case CompareOp::kNotEqual:
      return !equal(a, b);
    case CompareOp::kIn:
      return contains(b, a);
    case CompareOp::kNotIn:
      return !contains(b, a);
    default:
      return ordered(op, a, b);
  }
}

bool less(const Value& a, const Value& b) { return ordered(CompareOp::kLess, a, b); }

bool contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) fail("'in <string>' requires string as left operand, not " + type_name(item));
    charge_scan(container.as_string().size() + item.as_string().size());
    return find_text(container.as_string(), item.as_string()) != std::string_view::npos;
  }
  if (container.is(Kind::kDict)) return container.as_dict().find(item) != nullptr;
  if (!is_iterable(container)) fail("argument of type '" + type_name(container) + "' is not iterable");
  for (const Value& element : Elements(container)) {
    if (element.same_as(item) || equal(element, item)) return true;
  }
  return false;
}

Value get_attribute(const Value& object, const std::string& name) {
  refuse_undefined(object);
  if (auto found = find_attribute(object, name)) return *found;
  if (object.is(Kind::kDict)) {
    if (const Value* found = object.as_dict().find(std::string_view(name))) return *found;
  }
  return Value::undefined(described_type(object) + " has no attribute '" + name + "'");
}

Value get_item(const Value& object, const Value& key) {
  refuse_undefined(object);
  if (auto found = find_item(object, key)) return *found;
  if (key.is_string()) {
    if (auto found = find_attribute(object, key.as_string())) return *found;
  }
  return not_there(object, key);
}

Value get_slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  refuse_undefined(object);
  bool range = object.is(Kind::kObject) && object.as_object()->indexable();
  if (object.is(Kind::kDict)) fail("unhashable type: 'slice'");
  if (!object.is_string() && !object.is_sequence() && !range) {
    fail("'" + type_name(object) + "' object is not subscriptable");
  }
  if (!step.is_none() && !step.is_integral()) {
    refuse_undefined(step);
    fail("slice indices must be integers or None or have an __index__ method");
  }
  Int stride = step.is_none() ? 1 : step.as_int();
  if (stride == 0) fail("slice step cannot be zero");
  if (object.is_string()) return slice_string(object, start, stop, stride);
  Elements elements(object);
  Values items;
  for_slice(elements.all().size(), start, stop, stride, [&](std::size_t i) { items.push_back(elements.all()[i]); });
  return object.is(Kind::kTuple) ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

}  // namespace backplane::text::jinja
