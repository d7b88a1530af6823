// The syntax tree. Nodes evaluate themselves (eval_expr.cc, eval_stmt.cc); a parsed tree never changes and may be
// rendered by many threads at once. Its depth is bounded by kMaxTreeDepth.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/text/jinja/objects.h"
#include "core/text/jinja/value.h"

namespace backplane::text::jinja {

class Interpreter;
using NameId = std::uint32_t;  // index into Program::names

struct Expr {
  virtual ~Expr() = default;
  virtual Value evaluate(Interpreter& in) const = 0;
  int line = 0;
  int depth = 1;
};
using ExprPtr = std::unique_ptr<Expr>;

enum class Flow { kNormal, kBreak, kContinue };

struct Stmt {
  virtual ~Stmt() = default;
  virtual Flow execute(Interpreter& in) const = 0;
  int line = 0;
};
using StmtPtr = std::unique_ptr<Stmt>;
using Block = std::vector<StmtPtr>;

// --- Expressions -----------------------------------------------------------------------------------------------

struct ConstExpr : Expr {
  Value value;
  Value evaluate(Interpreter&) const override { return value; }
};

struct NameExpr : Expr {
  NameId name = 0;
  Value evaluate(Interpreter& in) const override;
};

struct ListExpr : Expr {
  std::vector<ExprPtr> items;
  bool tuple = false;
  Value evaluate(Interpreter& in) const override;
};

struct DictExpr : Expr {
  std::vector<std::pair<ExprPtr, ExprPtr>> items;
  Value evaluate(Interpreter& in) const override;
};

struct AttributeExpr : Expr {
  ExprPtr object;
  std::string name;
  Value evaluate(Interpreter& in) const override;
};

struct ItemExpr : Expr {
  ExprPtr object, key;
  Value evaluate(Interpreter& in) const override;
};

struct SliceExpr : Expr {
  ExprPtr object, start, stop, step;  // the last three may be null
  Value evaluate(Interpreter& in) const override;
};

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, star_star;  // may be null
  Arguments evaluate(Interpreter& in) const;
};

struct CallExpr : Expr {
  ExprPtr callee;
  CallArguments arguments;
  Value evaluate(Interpreter& in) const override;
  Value call_with(Interpreter& in, Arguments all) const;
};

struct FilterCall {
  std::string name;
  NativeCode code = nullptr;  // null: unknown, an error once it is reached
  CallArguments arguments;
  int line = 0;
  Value apply(Interpreter& in, const Value& value) const;
};

struct FilterExpr : Expr {
  ExprPtr value;
  FilterCall filter;
  Value evaluate(Interpreter& in) const override;
};

struct TestExpr : Expr {
  ExprPtr value;
  FilterCall test;
  bool negated = false;
  Value evaluate(Interpreter& in) const override;
};

enum class UnaryOp { kNot, kNegative, kPositive };
struct UnaryExpr : Expr {
  UnaryOp op = UnaryOp::kNot;
  ExprPtr operand;
  Value evaluate(Interpreter& in) const override;
};

enum class BinaryOp { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
struct BinaryExpr : Expr {
  BinaryOp op = BinaryOp::kAdd;
  ExprPtr left, right;
  Value evaluate(Interpreter& in) const override;
};

struct LogicExpr : Expr {  // `and`, `or`: gives one of the operands
  bool is_and = false;
  ExprPtr left, right;
  Value evaluate(Interpreter& in) const override;
};

enum class CompareOp { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
struct CompareExpr : Expr {
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
  Value evaluate(Interpreter& in) const override;
};

struct ConcatExpr : Expr {  // a ~ b ~ c
  std::vector<ExprPtr> parts;
  Value evaluate(Interpreter& in) const override;
};

struct ConditionExpr : Expr {
  ExprPtr condition, then, otherwise;  // the last may be null
  Value evaluate(Interpreter& in) const override;
};

// --- Statements ------------------------------------------------------------------------------------------------

// What a value is assigned to: a name, a namespace's attribute, or a tuple of targets.
struct Target {
  NameId name = 0;
  std::string attribute;      // not empty: of the namespace `name`
  std::vector<Target> parts;  // not empty: a tuple
  bool is_tuple = false;
  int line = 0;
};

struct DataStmt : Stmt {
  std::string text;
  Flow execute(Interpreter& in) const override;
};

struct OutputStmt : Stmt {
  ExprPtr value;
  Flow execute(Interpreter& in) const override;
};

struct SetStmt : Stmt {
  Target target;
  ExprPtr value;
  Flow execute(Interpreter& in) const override;
};

struct SetBlockStmt : Stmt {
  Target target;
  std::vector<FilterCall> filters;
  Block body;
  Flow execute(Interpreter& in) const override;
};

struct FilterBlockStmt : Stmt {
  std::vector<FilterCall> filters;
  Block body;
  Flow execute(Interpreter& in) const override;
};

struct IfStmt : Stmt {
  std::vector<std::pair<ExprPtr, Block>> branches;
  Block otherwise;
  Flow execute(Interpreter& in) const override;
};

struct ForStmt : Stmt {
  Target target;
  ExprPtr source;
  ExprPtr condition;  // may be null
  bool recursive = false;
  Block body, otherwise;
  Flow execute(Interpreter& in) const override;
  void run(Interpreter& in, const Value& items, int depth) const;
};

struct WithStmt : Stmt {  // also any other block with a scope of its own
  std::vector<std::pair<Target, ExprPtr>> values;
  Block body;
  Flow execute(Interpreter& in) const override;
};

// A macro, or the body of a call block or generation block.
struct MacroBody {
  std::string name;
  std::vector<NameId> parameters;
  std::vector<std::string> parameter_names;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Block body;
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
};

struct MacroStmt : Stmt {
  NameId name = 0;
  MacroBody macro;
  Flow execute(Interpreter& in) const override;
};

struct CallBlockStmt : Stmt {
  std::unique_ptr<CallExpr> call;
  MacroBody caller;
  Flow execute(Interpreter& in) const override;
};

struct LoopControlStmt : Stmt {
  Flow flow = Flow::kBreak;
  Flow execute(Interpreter&) const override { return flow; }
};

struct UnsupportedStmt : Stmt {  // a fault only if it is reached, as a missing template is in Jinja
  std::string message;
  Flow execute(Interpreter& in) const override;
};

struct Program {
  std::vector<std::string> names;
  Block body;
};

}  // namespace backplane::text::jinja
