// Parses a template into a Program. Throws SyntaxFault.
#pragma once

#include <initializer_list>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/text/jinja/ast.h"
#include "core/text/jinja/lexer.h"
#include "core/text/jinja/limits.h"

namespace backplane::text::jinja {

class Parser {
 public:
  explicit Parser(std::string_view source);
  Program parse();

 private:
  using Words = std::vector<std::string_view>;

  // parser.cc: tokens, names, statements.
  [[noreturn]] void fault(const std::string& message) const;
  [[noreturn]] void fault_at(const std::string& message, int line) const;
  [[noreturn]] void unclosed(std::string message, std::string_view tag, int line) const;
  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool skip_name(std::string_view name);
  bool skip_operator(std::string_view symbol);
  Token expect(TokenType type, std::string_view described);
  void expect_operator(std::string_view symbol);
  void expect_name(std::string_view name);
  NameId intern(const std::string& name);

  Block parse_body(const Words& ends);   // stops in front of the end word, inside its tag
  Block parse_block(const Words& ends);  // first takes the %} of the tag that opens the block
  Block parse_whole_block(std::string_view end);
  StmtPtr parse_statement();
  StmtPtr parse_tag(const std::string& tag);
  StmtPtr parse_set(int line);
  StmtPtr parse_for();
  StmtPtr parse_if();
  StmtPtr parse_with();
  StmtPtr parse_macro();
  StmtPtr parse_call_block(int line);
  StmtPtr parse_filter_block();
  StmtPtr parse_generation();
  StmtPtr parse_autoescape();
  StmtPtr parse_named_block();
  StmtPtr parse_loop_control(Flow flow);
  StmtPtr parse_unsupported(const std::string& tag);
  Target parse_target(bool with_namespace, bool until_in = false);
  Target parse_single_target(bool with_namespace);
  void parse_signature(MacroBody& macro);
  void parse_macro_body(MacroBody& macro, std::string_view end);

  // parser_expr.cc: expressions.
  ExprPtr parse_tuple(bool with_condition = true, bool parenthesized = false, std::string_view end_name = {});
  ExprPtr parse_expression(bool with_condition = true);
  ExprPtr parse_condition();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter = true);
  ExprPtr parse_primary();
  ExprPtr parse_name(const Token& token);
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_filters(ExprPtr node);
  ExprPtr parse_subscript(ExprPtr node);
  ExprPtr parse_slice(ExprPtr object, ExprPtr start, int line);
  ExprPtr parse_call(ExprPtr node);
  ExprPtr parse_test(ExprPtr node);
  CallArguments parse_arguments();
  FilterCall parse_filter_call();
  std::string parse_dotted_name();
  ExprPtr make_binary(BinaryOp op, ExprPtr left, ExprPtr right, int line) const;

  // Sets line and depth of a node whose children are the given ones (null ones are passed over).
  template <typename Node>
  ExprPtr finish(std::unique_ptr<Node> node, int line, std::initializer_list<const Expr*> children) const;
  int deepest(const CallArguments& arguments) const;

  // Counts nested parse functions while it lives, so that no source can exhaust the stack.
  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaxTreeDepth) parser_.fault("the template is nested too deeply");
    }
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  Program program_;
  std::unordered_map<std::string, NameId> name_ids_;
  std::vector<std::string> open_tags_;
  std::vector<Words> awaited_;      // what would close the open blocks
  std::vector<MacroBody*> macros_;  // the enclosing ones
  int nesting_ = 0;
  int loops_ = 0;  // enclosing loops that break and continue may refer to
};

template <typename Node>
ExprPtr Parser::finish(std::unique_ptr<Node> node, int line, std::initializer_list<const Expr*> children) const {
  node->line = line;
  for (const Expr* child : children) {
    if (child) node->depth = std::max(node->depth, child->depth + 1);
  }
  if (node->depth > kMaxTreeDepth) fault_at("the expression is nested too deeply", line);
  return node;
}

}  // namespace backplane::text::jinja
