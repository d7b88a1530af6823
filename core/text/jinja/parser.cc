#include "core/text/jinja/parser.h"

#include <algorithm>

namespace backplane::text::jinja {

Parser::Parser(std::string_view source) {
  if (source.size() > kMaxSourceBytes) throw SyntaxFault{"the template is too large", 1};
  tokens_ = tokenize(source);
  for (const char* name : {"loop", "caller", "kwargs", "varargs"}) intern(name);  // kLoopName and so on
}

Program Parser::parse() {
  program_.body = parse_body({});
  return std::move(program_);
}

// --- Tokens and names ------------------------------------------------------------------------------------------

void Parser::fault(const std::string& message) const { fault_at(message, current().line); }

void Parser::fault_at(const std::string& message, int line) const { throw SyntaxFault{message, line}; }

// Says which tag is missing, after an unknown `tag` or (empty) at the end of the template.
void Parser::unclosed(std::string message, std::string_view tag, int line) const {
  if (!awaited_.empty()) {
    auto awaits = [&](const Words& words) { return std::find(words.begin(), words.end(), tag) != words.end(); };
    bool misplaced = std::any_of(awaited_.begin(), awaited_.end(), awaits);
    message += misplaced
                   ? " You probably made a nesting mistake. Jinja is expecting this tag, but currently looking for "
                   : " Jinja was looking for the following tags: ";
    const char* separator = "";
    for (std::string_view word : awaited_.back()) {
      message += separator + ("'" + std::string(word) + "'");
      separator = " or ";
    }
    message += ".";
  }
  if (!open_tags_.empty()) {
    message += " The innermost block that needs to be closed is '" + open_tags_.back() + "'.";
  }
  fault_at(message, line);
}

Token Parser::take() {
  Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::skip_name(std::string_view name) {
  bool found = current().is_name(name);
  if (found) take();
  return found;
}

bool Parser::skip_operator(std::string_view symbol) {
  bool found = current().is_operator(symbol);
  if (found) take();
  return found;
}

Token Parser::expect(TokenType type, std::string_view described) {
  if (current().type == type) return take();
  if (current().type == TokenType::kEnd) {
    fault("unexpected end of template, expected '" + std::string(described) + "'.");
  }
  fault("expected token '" + std::string(described) + "', got '" + describe(current()) + "'");
}

void Parser::expect_operator(std::string_view symbol) {
  if (!current().is_operator(symbol)) {
    fault("expected token '" + std::string(symbol) + "', got '" + describe(current()) + "'");
  }
  take();
}

void Parser::expect_name(std::string_view name) {
  if (!current().is_name(name)) {
    fault("expected token '" + std::string(name) + "', got '" + describe(current()) + "'");
  }
  take();
}

NameId Parser::intern(const std::string& name) {
  auto [found, added] = name_ids_.emplace(name, static_cast<NameId>(program_.names.size()));
  if (added) program_.names.push_back(name);
  return found->second;
}

// --- Blocks ----------------------------------------------------------------------------------------------------

Block Parser::parse_body(const Words& ends) {
  Nesting nesting(*this);
  if (!ends.empty()) awaited_.push_back(ends);
  Block body;
  while (current().type != TokenType::kEnd) {
    int line = current().line;
    Token token = take();
    if (token.type == TokenType::kData) {
      auto data = std::make_unique<DataStmt>();
      data->text = std::move(token.text);
      data->line = line;
      body.push_back(std::move(data));
    } else if (token.type == TokenType::kVariableBegin) {
      auto output = std::make_unique<OutputStmt>();
      output->line = line;
      output->value = parse_tuple();
      expect(TokenType::kVariableEnd, "end of print statement");
      body.push_back(std::move(output));
    } else {
      for (std::string_view end : ends) {
        if (!current().is_name(end)) continue;
        awaited_.pop_back();
        return body;
      }
      if (StmtPtr statement = parse_statement()) {
        statement->line = line;
        body.push_back(std::move(statement));
      }
      expect(TokenType::kBlockEnd, "end of statement block");
    }
  }
  if (!ends.empty()) unclosed("Unexpected end of template.", "", current().line);
  return body;
}

Block Parser::parse_block(const Words& ends) {
  skip_operator(":");
  expect(TokenType::kBlockEnd, "end of statement block");
  return parse_body(ends);
}

Block Parser::parse_whole_block(std::string_view end) {
  Block body = parse_block({end});
  take();
  return body;
}

StmtPtr Parser::parse_statement() {
  if (current().type != TokenType::kName) fault("tag name expected");
  Token tag = take();
  open_tags_.push_back(tag.text);
  StmtPtr statement = parse_tag(tag.text);
  open_tags_.pop_back();
  if (!statement) unclosed("Encountered unknown tag '" + tag.text + "'.", tag.text, tag.line);
  return statement;
}

// Null if there is no such tag.
StmtPtr Parser::parse_tag(const std::string& tag) {
  int line = current().line;
  if (tag == "set") return parse_set(line);
  if (tag == "for") return parse_for();
  if (tag == "if") return parse_if();
  if (tag == "with") return parse_with();
  if (tag == "macro") return parse_macro();
  if (tag == "call") return parse_call_block(line);
  if (tag == "filter") return parse_filter_block();
  if (tag == "generation") return parse_generation();
  if (tag == "autoescape") return parse_autoescape();
  if (tag == "block") return parse_named_block();
  if (tag == "break") return parse_loop_control(Flow::kBreak);
  if (tag == "continue") return parse_loop_control(Flow::kContinue);
  if (tag == "include" || tag == "import" || tag == "from" || tag == "extends") return parse_unsupported(tag);
  if (tag == "print") {
    auto output = std::make_unique<OutputStmt>();
    output->value = parse_tuple();
    return output;
  }
  return nullptr;
}

StmtPtr Parser::parse_set(int line) {
  Target target = parse_target(true);
  if (skip_operator("=")) {
    auto set = std::make_unique<SetStmt>();
    set->target = std::move(target);
    set->value = parse_tuple();
    return set;
  }
  if (target.is_tuple) fault_at("a set block needs a single name", line);
  auto set = std::make_unique<SetBlockStmt>();
  set->target = std::move(target);
  while (skip_operator("|")) set->filters.push_back(parse_filter_call());
  set->body = parse_whole_block("endset");
  return set;
}

StmtPtr Parser::parse_for() {
  auto loop = std::make_unique<ForStmt>();
  loop->target = parse_target(false, true);
  expect_name("in");
  loop->source = parse_tuple(false, false, "recursive");
  if (skip_name("if")) loop->condition = parse_expression();
  loop->recursive = skip_name("recursive");
  ++loops_;
  loop->body = parse_block({"endfor", "else"});
  --loops_;
  if (take().text == "else") loop->otherwise = parse_whole_block("endfor");
  return loop;
}

StmtPtr Parser::parse_if() {
  auto branch = std::make_unique<IfStmt>();
  while (true) {
    ExprPtr condition = parse_tuple(false);
    branch->branches.emplace_back(std::move(condition), parse_block({"elif", "else", "endif"}));
    bool last = !current().is_name("elif");
    bool otherwise = current().is_name("else");
    take();
    if (otherwise) branch->otherwise = parse_whole_block("endif");
    if (last) break;
  }
  return branch;
}

StmtPtr Parser::parse_with() {
  auto with = std::make_unique<WithStmt>();
  while (current().type != TokenType::kBlockEnd) {
    if (!with->values.empty()) expect_operator(",");
    Target target = parse_target(false);
    expect_operator("=");
    with->values.emplace_back(std::move(target), parse_expression());
  }
  with->body = parse_whole_block("endwith");
  return with;
}

void Parser::parse_signature(MacroBody& macro) {
  expect_operator("(");
  while (!current().is_operator(")")) {
    if (!macro.parameters.empty()) expect_operator(",");
    std::string name = expect(TokenType::kName, "name").text;
    macro.parameters.push_back(intern(name));
    macro.parameter_names.push_back(name);
    if (skip_operator("=")) {
      macro.defaults.push_back(parse_expression());
    } else if (!macro.defaults.empty()) {
      fault("non-default argument follows default argument");
    }
  }
  expect_operator(")");
}

void Parser::parse_macro_body(MacroBody& macro, std::string_view end) {
  int loops = std::exchange(loops_, 0);
  macros_.push_back(&macro);
  macro.body = parse_whole_block(end);
  macros_.pop_back();
  loops_ = loops;
}

StmtPtr Parser::parse_macro() {
  auto macro = std::make_unique<MacroStmt>();
  macro->macro.name = expect(TokenType::kName, "name").text;
  macro->name = intern(macro->macro.name);
  parse_signature(macro->macro);
  parse_macro_body(macro->macro, "endmacro");
  return macro;
}

StmtPtr Parser::parse_call_block(int line) {
  auto block = std::make_unique<CallBlockStmt>();
  block->caller.name = "caller";
  if (current().is_operator("(")) parse_signature(block->caller);
  ExprPtr call = parse_expression();
  if (!dynamic_cast<CallExpr*>(call.get())) fault_at("expected call", line);
  block->call.reset(static_cast<CallExpr*>(call.release()));
  parse_macro_body(block->caller, "endcall");
  return block;
}

StmtPtr Parser::parse_filter_block() {
  auto block = std::make_unique<FilterBlockStmt>();
  do {
    block->filters.push_back(parse_filter_call());
  } while (skip_operator("|"));
  block->body = parse_whole_block("endfilter");
  return block;
}

// Marks what the model said, for training; rendering only needs its text.
StmtPtr Parser::parse_generation() {
  auto block = std::make_unique<FilterBlockStmt>();
  int loops = std::exchange(loops_, 0);
  block->body = parse_whole_block("endgeneration");
  loops_ = loops;
  return block;
}

StmtPtr Parser::parse_autoescape() {
  ExprPtr value = parse_expression();
  auto* constant = dynamic_cast<ConstExpr*>(value.get());
  if (!constant || truthy(constant->value)) fault("autoescape is not supported");
  auto scope = std::make_unique<WithStmt>();
  scope->body = parse_whole_block("endautoescape");
  return scope;
}

// There is no inheritance here, so a block is its contents.
StmtPtr Parser::parse_named_block() {
  std::string name = expect(TokenType::kName, "name").text;
  skip_name("scoped");
  skip_name("required");
  auto scope = std::make_unique<WithStmt>();
  int loops = std::exchange(loops_, 0);
  scope->body = parse_whole_block("endblock");
  loops_ = loops;
  skip_name(name);
  return scope;
}

StmtPtr Parser::parse_loop_control(Flow flow) {
  if (loops_ == 0) fault("'break' and 'continue' are allowed in a loop only");
  auto control = std::make_unique<LoopControlStmt>();
  control->flow = flow;
  return control;
}

StmtPtr Parser::parse_unsupported(const std::string& tag) {
  while (current().type != TokenType::kBlockEnd && current().type != TokenType::kEnd) take();
  auto statement = std::make_unique<UnsupportedStmt>();
  statement->message = "'" + tag + "' is not supported: a chat template is one file";
  return statement;
}

// --- Assignment targets ----------------------------------------------------------------------------------------

Target Parser::parse_target(bool with_namespace, bool until_in) {
  Nesting nesting(*this);
  Target tuple;
  tuple.line = current().line;
  auto ends = [&] {
    return current().type == TokenType::kBlockEnd || current().is_operator(")") ||
           (until_in && current().is_name("in"));
  };
  while (!ends()) {
    tuple.parts.push_back(parse_single_target(with_namespace));
    if (!skip_operator(",")) break;
    tuple.is_tuple = true;
  }
  if (tuple.parts.empty()) fault("Expected an expression, got '" + describe(current()) + "'");
  if (tuple.is_tuple) return tuple;
  Target single = std::move(tuple.parts[0]);
  return single;
}

Target Parser::parse_single_target(bool with_namespace) {
  if (skip_operator("(")) {
    Target inner = parse_target(with_namespace);
    expect_operator(")");
    return inner;
  }
  Target target;
  target.line = current().line;
  bool literal = current().type == TokenType::kString || current().type == TokenType::kInt;
  if (literal) fault("can't assign to 'const'");
  if (current().type != TokenType::kName) fault("can't assign to '" + describe(current()) + "'");
  std::string name = take().text;
  for (std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
    if (name == constant) fault("can't assign to 'const'");
  }
  target.name = intern(name);
  if (with_namespace && skip_operator(".")) target.attribute = expect(TokenType::kName, "name").text;
  return target;
}

}  // namespace backplane::text::jinja
