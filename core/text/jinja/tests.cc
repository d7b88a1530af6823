// The tests: `value is name(arguments)`.
#include "core/text/jinja/budget.h"
#include "core/text/jinja/builtins.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/template_error.h"

namespace backplane::text::jinja {
namespace {

// A test without arguments, from a predicate.
template <bool (*holds)(const Value&)>
Value test_that(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound("test", arguments, {});
  return Value::boolean(holds(self));
}

template <CompareOp op>
Value test_compare(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("test", arguments, {"other"}, 1);
  return Value::boolean(compare(op, self, bound.at(0)));
}

Int remainder(const Value& value, const Value& divisor) {
  Value rest = apply_binary(BinaryOp::kModulo, value, divisor);
  if (!rest.is_number()) fail("not all arguments converted during string formatting");
  // Only whether it is 0 or 1 matters; other fractions are neither.
  if (rest.is_integral()) return rest.as_int();
  return rest.as_float() == 0 ? 0 : rest.as_float() == 1 ? 1 : 2;
}

bool is_odd(const Value& v) { return remainder(v, Value::integer(2)) == 1; }
bool is_even(const Value& v) { return remainder(v, Value::integer(2)) == 0; }
bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is(Kind::kBool); }
bool is_true(const Value& v) { return v.is(Kind::kBool) && v.as_bool(); }
bool is_false(const Value& v) { return v.is(Kind::kBool) && !v.as_bool(); }
bool is_integer(const Value& v) { return v.is(Kind::kInt); }
bool is_float(const Value& v) { return v.is(Kind::kFloat); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is(Kind::kDict); }
bool is_callable(const Value& v) { return v.is_undefined() || (v.is(Kind::kObject) && v.as_object()->callable()); }
bool is_escaped(const Value& v) { return v.is_safe(); }
bool is_sequence(const Value& v) {
  if (v.is(Kind::kObject)) return v.as_object()->indexable();
  return v.is_string() || v.is_sequence() || v.is(Kind::kDict) || v.is_undefined();
}

// islower and isupper of the value's text.
bool has_case(const Value& v, bool upper) {
  std::string text = to_text(v);
  charge_steps(text.size() / 16);
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    char32_t c = next_code_point(text, at);
    if (is_title(c) || (upper ? is_lower(c) : jinja::is_upper(c))) return false;
    any = any || (upper ? jinja::is_upper(c) : is_lower(c));
  }
  return any;
}
bool is_lower_case(const Value& v) { return has_case(v, false); }
bool is_upper_case(const Value& v) { return has_case(v, true); }

Value test_divisibleby(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("divisibleby", arguments, {"num"}, 1);
  return Value::boolean(remainder(self, bound.at(0)) == 0);
}

Value test_sameas(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("sameas", arguments, {"other"}, 1);
  return Value::boolean(self.same_as(bound.at(0)));
}

Value test_in(Interpreter&, const Value& self, const Arguments& arguments) {
  Bound bound("in", arguments, {"seq"}, 1);
  return Value::boolean(contains(bound.at(0), self));
}

bool is_filter(const Value& v) { return v.is_string() && find_filter(v.as_string()); }
bool is_test(const Value& v) { return v.is_string() && find_test(v.as_string()); }

}  // namespace

NativeCode find_test(std::string_view name) {
  static const NativeTable table = {
      {"odd", test_that<is_odd>},
      {"even", test_that<is_even>},
      {"defined", test_that<is_defined>},
      {"undefined", test_that<is_undefined>},
      {"none", test_that<is_none>},
      {"boolean", test_that<is_boolean>},
      {"true", test_that<is_true>},
      {"false", test_that<is_false>},
      {"integer", test_that<is_integer>},
      {"float", test_that<is_float>},
      {"number", test_that<is_number>},
      {"string", test_that<is_string>},
      {"mapping", test_that<is_mapping>},
      {"sequence", test_that<is_sequence>},
      {"iterable", test_that<is_iterable>},
      {"callable", test_that<is_callable>},
      {"escaped", test_that<is_escaped>},
      {"lower", test_that<is_lower_case>},
      {"upper", test_that<is_upper_case>},
      {"filter", test_that<is_filter>},
      {"test", test_that<is_test>},
      {"divisibleby", test_divisibleby},
      {"sameas", test_sameas},
      {"in", test_in},
      {"eq", test_compare<CompareOp::kEqual>},
      {"equalto", test_compare<CompareOp::kEqual>},
      {"==", test_compare<CompareOp::kEqual>},
      {"ne", test_compare<CompareOp::kNotEqual>},
      {"!=", test_compare<CompareOp::kNotEqual>},
      {"lt", test_compare<CompareOp::kLess>},
      {"lessthan", test_compare<CompareOp::kLess>},
      {"<", test_compare<CompareOp::kLess>},
      {"le", test_compare<CompareOp::kLessEqual>},
      {"<=", test_compare<CompareOp::kLessEqual>},
      {"gt", test_compare<CompareOp::kGreater>},
      {"greaterthan", test_compare<CompareOp::kGreater>},
      {">", test_compare<CompareOp::kGreater>},
      {"ge", test_compare<CompareOp::kGreaterEqual>},
      {">=", test_compare<CompareOp::kGreaterEqual>},
  };
  auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace backplane::text::jinja
