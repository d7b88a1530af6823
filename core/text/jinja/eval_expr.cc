// How expressions evaluate.
#include "core/text/jinja/budget.h"
#include "core/text/jinja/interpreter.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/template_error.h"

namespace backplane::text::jinja {
namespace {

Value evaluate_or_none(Interpreter& in, const ExprPtr& expr) { return expr ? in.evaluate(*expr) : Value(); }

}  // namespace

Value NameExpr::evaluate(Interpreter& in) const { return in.look_up(name); }

Value ListExpr::evaluate(Interpreter& in) const {
  Values values;
  values.reserve(items.size());
  for (const auto& item : items) values.push_back(in.evaluate(*item));
  return tuple ? Value::tuple(std::move(values)) : Value::list(std::move(values));
}

Value DictExpr::evaluate(Interpreter& in) const {
  Dict dict;
  for (const auto& [key, item] : items) {
    Value name = in.evaluate(*key);
    dict.set(std::move(name), in.evaluate(*item));
  }
  return Value::dict(std::move(dict));
}

Value AttributeExpr::evaluate(Interpreter& in) const {
  Value value = in.evaluate(*object);
  in.at_line(line);
  return get_attribute(value, name);
}

Value ItemExpr::evaluate(Interpreter& in) const {
  Value value = in.evaluate(*object);
  Value at = in.evaluate(*key);
  in.at_line(line);
  return get_item(value, at);
}

Value SliceExpr::evaluate(Interpreter& in) const {
  Value value = in.evaluate(*object);
  Value from = evaluate_or_none(in, start);
  Value to = evaluate_or_none(in, stop);
  Value stride = evaluate_or_none(in, step);
  in.at_line(line);
  return get_slice(value, from, to, stride);
}

Arguments CallArguments::evaluate(Interpreter& in) const {
  Arguments all;
  for (const auto& value : positional) all.positional.push_back(in.evaluate(*value));
  if (star) {
    Elements more(in.evaluate(*star));
    charge_bytes(more.all().size() * sizeof(Value));
    all.positional.insert(all.positional.end(), more.begin(), more.end());
  }
  for (const auto& [name, value] : named) all.named.emplace_back(name, in.evaluate(*value));
  if (star_star) {
    Value more = in.evaluate(*star_star);
    if (!more.is(Kind::kDict)) fail("argument after ** must be a mapping, not " + type_name(more));
    charge_bytes(more.as_dict().size() * sizeof(Dict::Entry));
    for (const auto& [key, value] : more.as_dict().entries()) {
      if (!key.is_string()) fail("keywords must be strings");
      all.named.emplace_back(key.as_string(), value);
    }
  }
  return all;
}

Value CallExpr::evaluate(Interpreter& in) const { return call_with(in, {}); }

// `extra` goes behind the call's own arguments.
Value CallExpr::call_with(Interpreter& in, Arguments extra) const {
  Value function = in.evaluate(*callee);
  if (function.is_undefined()) {
    in.at_line(line);
    fail(function.why_undefined());
  }
  Arguments all = arguments.evaluate(in);
  for (auto& named : extra.named) all.named.push_back(std::move(named));
  in.at_line(line);
  return in.call(function, all);
}

Value FilterCall::apply(Interpreter& in, const Value& value) const {
  Arguments all = arguments.evaluate(in);
  in.at_line(line);
  if (!code) fail("No filter named '" + name + "' found.");
  return code(in, value, all);
}

Value FilterExpr::evaluate(Interpreter& in) const { return filter.apply(in, in.evaluate(*value)); }

Value TestExpr::evaluate(Interpreter& in) const {
  Value tested = in.evaluate(*value);
  Arguments all = test.arguments.evaluate(in);
  in.at_line(line);
  if (!test.code) fail("No test named '" + test.name + "' found.");
  return Value::boolean(truthy(test.code(in, tested, all)) != negated);
}

Value UnaryExpr::evaluate(Interpreter& in) const {
  Value value = in.evaluate(*operand);
  in.at_line(line);
  switch (op) {
    case UnaryOp::kNot:
      return Value::boolean(!truthy(value));
    case UnaryOp::kNegative:
      return negate(value);
    case UnaryOp::kPositive:
      break;
  }
  return positive(value);
}

Value BinaryExpr::evaluate(Interpreter& in) const {
  Value a = in.evaluate(*left);
  Value b = in.evaluate(*right);
  in.at_line(line);
  return apply_binary(op, a, b);
}

Value LogicExpr::evaluate(Interpreter& in) const {
  Value a = in.evaluate(*left);
  return truthy(a) == is_and ? in.evaluate(*right) : a;
}

Value CompareExpr::evaluate(Interpreter& in) const {
  Value a = in.evaluate(*first);
  for (const auto& [op, operand] : rest) {
    Value b = in.evaluate(*operand);
    in.at_line(line);
    if (!compare(op, a, b)) return Value::boolean(false);
    a = std::move(b);
  }
  return Value::boolean(true);
}

Value ConcatExpr::evaluate(Interpreter& in) const {
  std::string text;
  for (const auto& part : parts) append_text(text, in.evaluate(*part));
  return Value::string(std::move(text));
}

Value ConditionExpr::evaluate(Interpreter& in) const {
  if (truthy(in.evaluate(*condition))) return in.evaluate(*then);
  if (otherwise) return in.evaluate(*otherwise);
  return Value::undefined("the inline if-expression on line " + std::to_string(line) +
                          " evaluated to false and no else section was defined.");
}

}  // namespace backplane::text::jinja
