// The `loop` variable of a for block: walks the elements, lazily where the loop has a condition.
#pragma once

#include <optional>

#include "core/text/jinja/interpreter.h"

namespace backplane::text::jinja {

class Loop final : public Object {
 public:
  // `scope` is the one around the for block.
  Loop(const ForStmt& statement, Scope& scope, const Value& source, int depth);

  // Goes on to the next element, if there is one.
  bool advance(Interpreter& in);
  const Value& current() const { return current_; }
  // The for block is done: a loop object that was put away sees no more elements.
  void finish();

  std::string type_name() const override { return "LoopContext"; }
  std::string repr() override;
  std::optional<Value> attribute(const std::string& name, const Value& self) override;
  bool callable() const override { return true; }
  Value call(Interpreter& in, const Arguments& arguments) override;  // a recursive loop's loop(children)
  int depth() const override { return value_depth_; }
  void release() override { last_changed_.reset(); }

  Value cycle(const Values& items) const;
  bool changed(Values values);

 private:
  std::optional<Value> fetch();
  const std::optional<Value>& peek();
  std::size_t count();

  const ForStmt& statement_;
  Scope& scope_;
  Elements source_;
  Interpreter* in_ = nullptr;  // while the block runs
  std::size_t position_ = 0;   // in source_
  std::deque<Value> fetched_;  // elements that passed the condition, for count()
  std::optional<std::size_t> count_;
  bool peeked_ = false;
  std::optional<Value> after_;  // meaningful if peeked_
  Value current_, before_;
  Int index0_ = -1;
  int depth0_;
  int value_depth_;
  std::optional<Value> last_changed_;
};

}  // namespace backplane::text::jinja
