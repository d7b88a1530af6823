#include "core/text/jinja/loop.h"

#include "core/text/jinja/template_error.h"

namespace backplane::text::jinja {
namespace {

Value loop_cycle(Interpreter&, const Value& self, const Arguments& arguments) {
  return static_cast<Loop&>(*self.as_object()).cycle(arguments.positional);
}

Value loop_changed(Interpreter& in, const Value& self, const Arguments& arguments) {
  in.keep(self.as_object());  // the values to compare with may hold the loop
  return Value::boolean(static_cast<Loop&>(*self.as_object()).changed(arguments.positional));
}

}  // namespace

Loop::Loop(const ForStmt& statement, Scope& scope, const Value& source, int depth)
    : statement_(statement), scope_(scope), source_(source), depth0_(depth), value_depth_(depth_above({source})) {}

bool Loop::advance(Interpreter& in) {
  in_ = &in;
  std::optional<Value> next = peeked_ ? std::move(after_) : fetch();
  peeked_ = false;
  if (!next) return false;
  ++index0_;
  before_ = std::move(current_);
  current_ = std::move(*next);
  return true;
}

void Loop::finish() {
  in_ = nullptr;
  position_ = source_.all().size();
  fetched_.clear();
}

std::optional<Value> Loop::fetch() {
  if (!fetched_.empty()) {
    Value first = std::move(fetched_.front());
    fetched_.pop_front();
    return first;
  }
  while (position_ < source_.all().size()) {
    const Value& element = source_.all()[position_++];
    if (!statement_.condition) return element;
    Interpreter::Entered entered(*in_, scope_);
    in_->assign(statement_.target, element);
    if (jinja::truthy(in_->evaluate(*statement_.condition))) return element;
  }
  return std::nullopt;
}

const std::optional<Value>& Loop::peek() {
  if (!peeked_) after_ = fetch();
  peeked_ = true;
  return after_;
}

std::size_t Loop::count() {
  if (count_) return *count_;
  if (!statement_.condition) return *(count_ = source_.all().size());
  std::deque<Value> rest;
  while (auto element = fetch()) rest.push_back(std::move(*element));
  fetched_ = std::move(rest);
  count_ = static_cast<std::size_t>(index0_ + 1) + (peeked_ && after_ ? 1 : 0) + fetched_.size();
  return *count_;
}

std::string Loop::repr() {
  // The count may have to evaluate the condition of the elements to come, which Python's does too.
  Int total = static_cast<Int>(count());
  return "<LoopContext " + int_text(index0_ + 1) + "/" + int_text(total) + ">";
}

std::optional<Value> Loop::attribute(const std::string& name, const Value& self) {
  auto integer = [](Int value) { return Value::integer(value); };
  if (name == "index") return integer(index0_ + 1);
  if (name == "index0") return integer(index0_);
  if (name == "first") return Value::boolean(index0_ == 0);
  if (name == "last") return Value::boolean(!peek());
  if (name == "length") return integer(static_cast<Int>(count()));
  if (name == "revindex") return integer(static_cast<Int>(count()) - index0_);
  if (name == "revindex0") return integer(static_cast<Int>(count()) - index0_ - 1);
  if (name == "depth") return integer(depth0_ + 1);
  if (name == "depth0") return integer(depth0_);
  if (name == "previtem") return index0_ == 0 ? Value::undefined("there is no previous item") : before_;
  if (name == "nextitem") return peek() ? *peek() : Value::undefined("there is no next item");
  if (name == "cycle") return Value::object(std::make_shared<Native>(name, loop_cycle, self));
  if (name == "changed") return Value::object(std::make_shared<Native>(name, loop_changed, self));
  return std::nullopt;
}

Value Loop::call(Interpreter& in, const Arguments& arguments) {
  if (!statement_.recursive) fail("The loop must have the 'recursive' marker to be called recursively.");
  if (arguments.positional.size() != 1 || !arguments.named.empty()) fail("loop() takes one argument");
  Interpreter::Entered entered(in, &scope_);
  return Value::string(in.capture([&] {
    statement_.run(in, arguments.positional[0], depth0_ + 1);
    return Flow::kNormal;
  }));
}

Value Loop::cycle(const Values& items) const {
  if (items.empty()) fail("no items for cycling given");
  return items[static_cast<std::size_t>(index0_ % static_cast<Int>(items.size()))];
}

bool Loop::changed(Values values) {
  Value now = Value::tuple(std::move(values));
  if (last_changed_ && equal(*last_changed_, now)) return false;
  last_changed_ = std::move(now);
  return true;
}

}  // namespace backplane::text::jinja
