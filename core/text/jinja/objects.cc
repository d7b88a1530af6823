#include "core/text/jinja/objects.h"

#include "core/text/jinja/budget.h"
#include "core/text/jinja/interpreter.h"
#include "core/text/jinja/template_error.h"

namespace backplane::text::jinja {
namespace {

std::size_t count_range(Int start, Int stop, Int step) {
  if (step == 0) fail("range() arg 3 must not be zero");
  UnsignedInt span = 0;
  if (step > 0 && stop > start) span = static_cast<UnsignedInt>(stop) - static_cast<UnsignedInt>(start);
  if (step < 0 && stop < start) span = static_cast<UnsignedInt>(start) - static_cast<UnsignedInt>(stop);
  UnsignedInt stride = step > 0 ? static_cast<UnsignedInt>(step) : -static_cast<UnsignedInt>(step);
  UnsignedInt count = span == 0 ? 0 : (span - 1) / stride + 1;
  if (count > static_cast<UnsignedInt>(kMaxRange)) {
    fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (" + std::to_string(kMaxRange) + ").");
  }
  return static_cast<std::size_t>(count);
}

Value cycler_next(Interpreter&, const Value& self, const Arguments&) {
  return static_cast<Cycler&>(*self.as_object()).next();
}

Value cycler_reset(Interpreter&, const Value& self, const Arguments&) {
  static_cast<Cycler&>(*self.as_object()).reset();
  return {};
}

}  // namespace

std::string Object::repr() { return "<" + type_name() + " object>"; }

Value Object::call(Interpreter&, const Arguments&) { fail("'" + type_name() + "' object is not callable"); }

Range::Range(Int start, Int stop, Int step)
    : start_(start), stop_(stop), step_(step), count_(count_range(start, stop, step)) {}

std::string Range::repr() {
  std::string text = "range(" + int_text(start_) + ", " + int_text(stop_);
  return text + (step_ == 1 ? ")" : ", " + int_text(step_) + ")");
}

Values Range::take_elements() {
  charge_bytes(count_ * sizeof(Value));
  Values all;
  all.reserve(count_);
  for (std::size_t i = 0; i < count_; ++i) all.push_back(Value::integer(start_ + static_cast<Int>(i) * step_));
  return all;
}

std::optional<Value> Range::element(const Value& key) {
  if (!key.is_integral()) return std::nullopt;
  Int at = key.as_int();
  Int count = static_cast<Int>(count_);
  if (at < 0) at += count;
  if (at < 0 || at >= count) return std::nullopt;
  return Value::integer(start_ + at * step_);
}

View::View(std::string type, Values items)
    : type_(std::move(type)), items_(std::move(items)), depth_(depth_above(items_)) {
  charge_bytes(items_.size() * sizeof(Value));
}

std::string View::repr() { return type_ + "(" + jinja::repr(Value::list(items_)) + ")"; }

Iterator::Iterator(std::string type, Values items)
    : type_(std::move(type)), items_(std::move(items)), depth_(depth_above(items_)) {
  charge_bytes(items_.size() * sizeof(Value));
}

Values Iterator::take_elements() {
  Values rest(items_.begin() + static_cast<std::ptrdiff_t>(next_), items_.end());
  next_ = items_.size();
  return rest;
}

std::optional<Value> Iterator::take_first() {
  if (next_ == items_.size()) return std::nullopt;
  return items_[next_++];
}

std::string Namespace::repr() { return "<Namespace " + jinja::repr(Value::dict(attributes_)) + ">"; }

std::optional<Value> Namespace::attribute(const std::string& name, const Value&) {
  const Value* found = attributes_.find(name);
  return found ? std::optional(*found) : std::nullopt;
}

void Namespace::set(const std::string& name, Value value) {
  charge_bytes(name.size() + sizeof(Dict::Entry));
  attributes_.set(Value::string(name), std::move(value));
}

Cycler::Cycler(Values items) : items_(std::move(items)), depth_(depth_above(items_)) {
  if (items_.empty()) fail("at least one item has to be provided");
}

std::optional<Value> Cycler::attribute(const std::string& name, const Value& self) {
  if (name == "current") return items_[position_];
  if (name == "next") return Value::object(std::make_shared<Native>(name, cycler_next, self));
  if (name == "reset") return Value::object(std::make_shared<Native>(name, cycler_reset, self));
  return std::nullopt;
}

Value Cycler::next() {
  Value current = items_[position_];
  position_ = (position_ + 1) % items_.size();
  return current;
}

Joiner::Joiner(Value separator) : separator_(std::move(separator)), depth_(depth_above({separator_})) {}

Value Joiner::call(Interpreter&, const Arguments&) {
  if (used_) return separator_;
  used_ = true;
  return Value::string("");
}

Native::Native(std::string name, NativeCode code, Value self)
    : name_(std::move(name)), code_(code), self_(std::move(self)), depth_(depth_above({self_})) {}

std::string Native::repr() {
  return self_.is_none() ? "<function " + name_ + ">"
                         : "<built-in method " + name_ + " of " + jinja::type_name(self_) + " object>";
}

Value Native::call(Interpreter& interpreter, const Arguments& arguments) {
  return code_(interpreter, self_, arguments);
}

Value make_generator(Values items) { return Value::object(std::make_shared<Iterator>("generator", std::move(items))); }

}  // namespace backplane::text::jinja
