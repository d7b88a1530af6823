#include "core/text/jinja/builtins.h"
#include "core/text/jinja/parser.h"

namespace backplane::text::jinja {
namespace {

std::optional<CompareOp> compare_operator(const Token& token) {
  if (token.type != TokenType::kOperator) return std::nullopt;
  if (token.text == "==") return CompareOp::kEqual;
  if (token.text == "!=") return CompareOp::kNotEqual;
  if (token.text == "<") return CompareOp::kLess;
  if (token.text == "<=") return CompareOp::kLessEqual;
  if (token.text == ">") return CompareOp::kGreater;
  if (token.text == ">=") return CompareOp::kGreaterEqual;
  return std::nullopt;
}

std::optional<BinaryOp> product_operator(const Token& token) {
  if (token.is_operator("*")) return BinaryOp::kMultiply;
  if (token.is_operator("/")) return BinaryOp::kDivide;
  if (token.is_operator("//")) return BinaryOp::kFloorDivide;
  if (token.is_operator("%")) return BinaryOp::kModulo;
  return std::nullopt;
}

}  // namespace

// One expression, or several with commas between, which make a tuple.
ExprPtr Parser::parse_tuple(bool with_condition, bool parenthesized, std::string_view end_name) {
  auto tuple = std::make_unique<ListExpr>();
  tuple->tuple = true;
  int line = current().line;
  bool comma = false;
  auto ends = [&] {
    return current().type == TokenType::kVariableEnd || current().type == TokenType::kBlockEnd ||
           current().is_operator(")") || (!end_name.empty() && current().is_name(end_name));
  };
  while (!ends()) {
    tuple->items.push_back(parse_expression(with_condition));
    if (!skip_operator(",")) break;
    comma = true;
  }
  if (!comma && !tuple->items.empty()) return std::move(tuple->items[0]);
  if (!comma && !parenthesized) fault("Expected an expression, got '" + describe(current()) + "'");
  int depth = 0;
  for (const auto& item : tuple->items) depth = std::max(depth, item->depth);
  tuple->depth = depth + 1;
  return finish(std::move(tuple), line, {});
}

ExprPtr Parser::parse_expression(bool with_condition) { return with_condition ? parse_condition() : parse_or(); }

ExprPtr Parser::parse_condition() {
  int line = current().line;
  ExprPtr then = parse_or();
  while (skip_name("if")) {
    auto node = std::make_unique<ConditionExpr>();
    node->then = std::move(then);
    node->condition = parse_or();
    if (skip_name("else")) {
      Nesting nesting(*this);
      node->otherwise = parse_condition();
    }
    const Expr* children[] = {node->then.get(), node->condition.get(), node->otherwise.get()};
    then = finish(std::move(node), line, {children[0], children[1], children[2]});
  }
  return then;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  for (int line = current().line; skip_name("or"); line = current().line) {
    auto node = std::make_unique<LogicExpr>();
    node->left = std::move(left);
    node->right = parse_and();
    const Expr* children[] = {node->left.get(), node->right.get()};
    left = finish(std::move(node), line, {children[0], children[1]});
  }
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  for (int line = current().line; skip_name("and"); line = current().line) {
    auto node = std::make_unique<LogicExpr>();
    node->is_and = true;
    node->left = std::move(left);
    node->right = parse_not();
    const Expr* children[] = {node->left.get(), node->right.get()};
    left = finish(std::move(node), line, {children[0], children[1]});
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!current().is_name("not")) return parse_compare();
  Nesting nesting(*this);
  int line = take().line;
  auto node = std::make_unique<UnaryExpr>();
  node->operand = parse_not();
  const Expr* child = node->operand.get();
  return finish(std::move(node), line, {child});
}

ExprPtr Parser::parse_compare() {
  int line = current().line;
  auto node = std::make_unique<CompareExpr>();
  node->first = parse_sum();
  while (true) {
    CompareOp op;
    if (auto symbol = compare_operator(current())) {
      op = *symbol;
      take();
    } else if (skip_name("in")) {
      op = CompareOp::kIn;
    } else if (current().is_name("not") && look().is_name("in")) {
      op = CompareOp::kNotIn;
      take();
      take();
    } else {
      break;
    }
    node->rest.emplace_back(op, parse_sum());
  }
  if (node->rest.empty()) return std::move(node->first);
  int depth = node->first->depth;
  for (const auto& [op, operand] : node->rest) depth = std::max(depth, operand->depth);
  node->depth = depth + 1;
  return finish(std::move(node), line, {});
}

ExprPtr Parser::make_binary(BinaryOp op, ExprPtr left, ExprPtr right, int line) const {
  auto node = std::make_unique<BinaryExpr>();
  node->op = op;
  node->left = std::move(left);
  node->right = std::move(right);
  const Expr* children[] = {node->left.get(), node->right.get()};
  return finish(std::move(node), line, {children[0], children[1]});
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (current().is_operator("+") || current().is_operator("-")) {
    Token token = take();
    ExprPtr right = parse_concat();
    BinaryOp op = token.text == "+" ? BinaryOp::kAdd : BinaryOp::kSubtract;
    left = make_binary(op, std::move(left), std::move(right), token.line);
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  int line = current().line;
  auto node = std::make_unique<ConcatExpr>();
  do {
    node->parts.push_back(parse_product());
  } while (skip_operator("~"));
  if (node->parts.size() == 1) return std::move(node->parts[0]);
  int depth = 0;
  for (const auto& part : node->parts) depth = std::max(depth, part->depth);
  node->depth = depth + 1;
  return finish(std::move(node), line, {});
}

ExprPtr Parser::parse_product() {
  ExprPtr left = parse_power();
  while (auto op = product_operator(current())) {
    int line = take().line;
    ExprPtr right = parse_power();
    left = make_binary(*op, std::move(left), std::move(right), line);
  }
  return left;
}

// To the left, other than in Python: 2 ** 3 ** 2 is 64.
ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary();
  while (current().is_operator("**")) {
    int line = take().line;
    ExprPtr right = parse_unary();
    left = make_binary(BinaryOp::kPower, std::move(left), std::move(right), line);
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filter) {
  Nesting nesting(*this);
  ExprPtr node;
  if (current().is_operator("-") || current().is_operator("+")) {
    Token sign = take();
    auto unary = std::make_unique<UnaryExpr>();
    unary->op = sign.text == "-" ? UnaryOp::kNegative : UnaryOp::kPositive;
    unary->operand = parse_unary(false);
    const Expr* child = unary->operand.get();
    node = finish(std::move(unary), sign.line, {child});
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filter ? parse_filters(std::move(node)) : std::move(node);
}

ExprPtr Parser::parse_primary() {
  const Token& token = current();
  if (token.type == TokenType::kName) return parse_name(take());
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_dict();
  if (skip_operator("(")) {
    ExprPtr inner = parse_tuple(true, true);
    expect_operator(")");
    return inner;
  }
  auto constant = std::make_unique<ConstExpr>();
  int line = token.line;
  if (token.type == TokenType::kString) {
    std::string text;
    while (current().type == TokenType::kString) text += take().text;
    constant->value = Value::string(std::move(text));
  } else if (token.type == TokenType::kInt) {
    constant->value = Value::integer(take().integer);
  } else if (token.type == TokenType::kFloat) {
    constant->value = Value::real(take().real);
  } else {
    fault("unexpected '" + describe(token) + "'");
  }
  return finish(std::move(constant), line, {});
}

ExprPtr Parser::parse_name(const Token& token) {
  const std::string& name = token.text;
  bool is_true = name == "true" || name == "True";
  if (is_true || name == "false" || name == "False" || name == "none" || name == "None") {
    auto constant = std::make_unique<ConstExpr>();
    if (name != "none" && name != "None") constant->value = Value::boolean(is_true);
    return finish(std::move(constant), token.line, {});
  }
  for (MacroBody* macro : macros_) {
    macro->uses_caller |= name == "caller";
    macro->uses_kwargs |= name == "kwargs";
    macro->uses_varargs |= name == "varargs";
  }
  auto node = std::make_unique<NameExpr>();
  node->name = intern(name);
  return finish(std::move(node), token.line, {});
}

ExprPtr Parser::parse_list() {
  int line = take().line;
  auto node = std::make_unique<ListExpr>();
  int depth = 0;
  while (!current().is_operator("]")) {
    if (!node->items.empty()) expect_operator(",");
    if (current().is_operator("]")) break;
    node->items.push_back(parse_expression());
    depth = std::max(depth, node->items.back()->depth);
  }
  expect_operator("]");
  node->depth = depth + 1;
  return finish(std::move(node), line, {});
}

ExprPtr Parser::parse_dict() {
  int line = take().line;
  auto node = std::make_unique<DictExpr>();
  int depth = 0;
  while (!current().is_operator("}")) {
    if (!node->items.empty()) expect_operator(",");
    if (current().is_operator("}")) break;
    ExprPtr key = parse_expression();
    expect_operator(":");
    ExprPtr value = parse_expression();
    depth = std::max({depth, key->depth, value->depth});
    node->items.emplace_back(std::move(key), std::move(value));
  }
  expect_operator("}");
  node->depth = depth + 1;
  return finish(std::move(node), line, {});
}

ExprPtr Parser::parse_postfix(ExprPtr node) {
  while (true) {
    if (current().is_operator(".") || current().is_operator("[")) {
      node = parse_subscript(std::move(node));
    } else if (current().is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::parse_filters(ExprPtr node) {
  while (true) {
    int line = current().line;
    if (skip_operator("|")) {
      auto filter = std::make_unique<FilterExpr>();
      filter->value = std::move(node);
      filter->filter = parse_filter_call();
      filter->depth = std::max(filter->value->depth, deepest(filter->filter.arguments)) + 1;
      node = finish(std::move(filter), line, {});
    } else if (current().is_name("is")) {
      node = parse_test(std::move(node));
    } else if (current().is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::parse_subscript(ExprPtr object) {
  Token token = take();
  if (token.text == "." && current().type == TokenType::kName) {
    auto node = std::make_unique<AttributeExpr>();
    node->name = take().text;
    node->object = std::move(object);
    const Expr* child = node->object.get();
    return finish(std::move(node), token.line, {child});
  }
  ExprPtr key;
  if (token.text == ".") {
    if (current().type != TokenType::kInt) fault("expected name or number");
    auto constant = std::make_unique<ConstExpr>();
    constant->value = Value::integer(take().integer);
    key = finish(std::move(constant), token.line, {});
  } else {
    if (!current().is_operator(":")) key = parse_expression();
    if (current().is_operator(":")) return parse_slice(std::move(object), std::move(key), token.line);
    if (current().is_operator(",")) {
      auto tuple = std::make_unique<ListExpr>();
      tuple->tuple = true;
      tuple->depth = key->depth + 1;
      tuple->items.push_back(std::move(key));
      while (skip_operator(",")) {
        tuple->items.push_back(parse_expression());
        tuple->depth = std::max(tuple->depth, tuple->items.back()->depth + 1);
      }
      key = finish(std::move(tuple), token.line, {});
    }
    expect_operator("]");
  }
  auto node = std::make_unique<ItemExpr>();
  node->object = std::move(object);
  node->key = std::move(key);
  const Expr* children[] = {node->object.get(), node->key.get()};
  return finish(std::move(node), token.line, {children[0], children[1]});
}

ExprPtr Parser::parse_slice(ExprPtr object, ExprPtr start, int line) {
  auto node = std::make_unique<SliceExpr>();
  node->object = std::move(object);
  node->start = std::move(start);
  auto part_ends = [&] { return current().is_operator(":") || current().is_operator("]"); };
  expect_operator(":");
  if (!part_ends()) node->stop = parse_expression();
  if (skip_operator(":") && !part_ends()) node->step = parse_expression();
  expect_operator("]");
  const Expr* children[] = {node->object.get(), node->start.get(), node->stop.get(), node->step.get()};
  return finish(std::move(node), line, {children[0], children[1], children[2], children[3]});
}

ExprPtr Parser::parse_call(ExprPtr callee) {
  int line = current().line;
  auto node = std::make_unique<CallExpr>();
  node->callee = std::move(callee);
  node->arguments = parse_arguments();
  node->depth = std::max(node->callee->depth, deepest(node->arguments)) + 1;
  return finish(std::move(node), line, {});
}

CallArguments Parser::parse_arguments() {
  int line = current().line;
  CallArguments arguments;
  auto ensure = [&](bool valid) {
    if (!valid) fault_at("invalid syntax for function call expression", line);
  };
  expect_operator("(");
  for (bool first = true; !current().is_operator(")"); first = false) {
    if (!first) expect_operator(",");
    if (current().is_operator(")")) break;
    if (skip_operator("*")) {
      ensure(!arguments.star && !arguments.star_star);
      arguments.star = parse_expression();
    } else if (skip_operator("**")) {
      ensure(!arguments.star_star);
      arguments.star_star = parse_expression();
    } else if (current().type == TokenType::kName && look().is_operator("=")) {
      ensure(!arguments.star_star);
      std::string name = take().text;
      take();
      arguments.named.emplace_back(std::move(name), parse_expression());
    } else {
      ensure(!arguments.star && !arguments.star_star && arguments.named.empty());
      arguments.positional.push_back(parse_expression());
    }
  }
  expect_operator(")");
  return arguments;
}

int Parser::deepest(const CallArguments& arguments) const {
  int depth = 0;
  for (const auto& value : arguments.positional) depth = std::max(depth, value->depth);
  for (const auto& [name, value] : arguments.named) depth = std::max(depth, value->depth);
  for (const Expr* value : {arguments.star.get(), arguments.star_star.get()}) {
    if (value) depth = std::max(depth, value->depth);
  }
  return depth;
}

std::string Parser::parse_dotted_name() {
  std::string name = expect(TokenType::kName, "name").text;
  while (skip_operator(".")) name += "." + expect(TokenType::kName, "name").text;
  return name;
}

FilterCall Parser::parse_filter_call() {
  FilterCall filter;
  filter.line = current().line;
  filter.name = parse_dotted_name();
  filter.code = find_filter(filter.name);
  if (current().is_operator("(")) filter.arguments = parse_arguments();
  return filter;
}

ExprPtr Parser::parse_test(ExprPtr value) {
  int line = take().line;
  auto node = std::make_unique<TestExpr>();
  node->value = std::move(value);
  node->negated = skip_name("not");
  node->test.line = line;
  node->test.name = parse_dotted_name();
  node->test.code = find_test(node->test.name);
  const Token& next = current();
  bool word_ends = next.is_name("else") || next.is_name("or") || next.is_name("and");
  bool argument_begins = (next.type == TokenType::kName && !word_ends) || next.type == TokenType::kString ||
                         next.type == TokenType::kInt || next.type == TokenType::kFloat || next.is_operator("[") ||
                         next.is_operator("{");
  if (next.is_operator("(")) {
    node->test.arguments = parse_arguments();
  } else if (argument_begins) {
    if (next.is_name("is")) fault("You cannot chain multiple tests with is");
    node->test.arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  node->depth = std::max(node->value->depth, deepest(node->test.arguments)) + 1;
  return finish(std::move(node), line, {});
}

}  // namespace backplane::text::jinja
