// The state of one rendering: scopes, output, limits. Not shared between threads.
#pragma once

#include <ctime>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/jinja/ast.h"
#include "core/text/jinja/limits.h"

namespace backplane::text::jinja {

// Variables of a block; lookups go on in the parent.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<NameId, Value>> variables;
  bool kept = false;  // to the end: its memory counts

  Value* find(NameId name);
  void set(NameId name, Value value);
};

class Interpreter {
 public:
  Interpreter(const Program& program, const Limits& limits, std::function<std::tm()> clock);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Renders the program with these variables at the bottom.
  std::string run(Scope variables);

  Value evaluate(const Expr& expr);
  Flow execute(const Block& block);
  Value call(const Value& callee, const Arguments& arguments);

  Value look_up(NameId name);
  void assign(const Target& target, const Value& value);
  Scope& scope() { return *scope_; }

  void write(std::string_view text);
  void write(const Value& value);
  // Runs `body` and gives what it wrote; whatever it returns goes to `flow`.
  std::string capture(const std::function<Flow()>& body, Flow* flow = nullptr);

  void at_line(int line) { line_ = line; }
  int line() const { return line_; }
  std::tm now() const { return clock_(); }

  // A value that may outlive its block refers to the current scope: scopes that are alive now live to the end.
  void capture_scopes();
  // Has the object release()d at the end.
  void keep(std::shared_ptr<Object> object) { kept_.push_back(std::move(object)); }

  // Makes a scope the current one while it lives: a new one under `parent`, or an existing one.
  class Entered {
   public:
    Entered(Interpreter& in, Scope& parent);
    Entered(Interpreter& in, Scope* existing);
    ~Entered();
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

   private:
    Interpreter& in_;
    Scope* previous_;
    bool made_;
    std::uint64_t captures_;
  };

 private:
  class Deeper;

  const Program& program_;
  Limits limits_;
  std::function<std::tm()> clock_;
  std::deque<Scope> scopes_;  // addresses stay
  Scope* scope_ = nullptr;
  std::uint64_t captures_ = 0;
  std::size_t kept_scopes_ = 0;  // the first of scopes_
  std::vector<std::shared_ptr<Object>> kept_;
  std::string* out_ = nullptr;
  int line_ = 1;
  int depth_ = 0;
};

// A macro or a call block's body, bound to the scope it was defined in. Requires the scope to live to the end.
class Macro final : public Object {
 public:
  Macro(const MacroBody& body, Scope& scope) : body_(body), scope_(scope) {}
  std::string type_name() const override { return "Macro"; }
  std::string repr() override { return "<Macro '" + body_.name + "'>"; }
  bool callable() const override { return true; }
  std::optional<Value> attribute(const std::string& name, const Value& self) override;
  Value call(Interpreter& in, const Arguments& arguments) override;

 private:
  void bind(Interpreter& in, Arguments arguments) const;
  void bind_special(Interpreter& in, Arguments& arguments, bool found_caller) const;

  const MacroBody& body_;
  Scope& scope_;
};

// Ids of the names that the interpreter itself uses, the same in every program.
inline constexpr NameId kLoopName = 0, kCallerName = 1, kKwargsName = 2, kVarargsName = 3;

}  // namespace backplane::text::jinja
