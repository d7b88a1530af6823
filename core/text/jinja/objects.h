// Values with behavior or identity: what Python has as its own class.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/text/jinja/arguments.h"
#include "core/text/jinja/value.h"

namespace backplane::text::jinja {

class Interpreter;

// The defaults are those of an opaque Python object.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string type_name() const = 0;
  virtual std::string repr();
  virtual bool truthy() const { return true; }
  virtual std::optional<std::size_t> length() const { return std::nullopt; }
  virtual bool iterable() const { return false; }
  virtual Values take_elements() { return {}; }  // an iterator is empty afterwards
  // `self` is the Value that holds this object.
  virtual std::optional<Value> attribute(const std::string& /*name*/, const Value& /*self*/) { return std::nullopt; }
  virtual std::optional<Value> element(const Value&) { return std::nullopt; }  // object[key]
  virtual bool indexable() const { return false; }
  virtual bool callable() const { return false; }
  virtual Value call(Interpreter&, const Arguments&);
  virtual int depth() const { return 0; }
  // Drops references that may form a cycle; called when the rendering ends, on objects given to Interpreter::keep().
  virtual void release() {}
};

class Range final : public Object {
 public:
  Range(Int start, Int stop, Int step);  // Fault if it has more than kMaxRange elements
  std::string type_name() const override { return "range"; }
  std::string repr() override;
  bool truthy() const override { return count_ > 0; }
  std::optional<std::size_t> length() const override { return count_; }
  bool iterable() const override { return true; }
  Values take_elements() override;
  std::optional<Value> element(const Value& key) override;
  bool indexable() const override { return true; }

 private:
  Int start_, stop_, step_;
  std::size_t count_;
};

// dict.keys(), dict.values(), dict.items(): of a dict that never changes, so a copy of references.
class View final : public Object {
 public:
  View(std::string type, Values items);
  std::string type_name() const override { return type_; }
  std::string repr() override;
  bool truthy() const override { return !items_.empty(); }
  std::optional<std::size_t> length() const override { return items_.size(); }
  bool iterable() const override { return true; }
  Values take_elements() override { return items_; }
  int depth() const override { return depth_; }

 private:
  std::string type_;
  Values items_;
  int depth_;
};

// A generator of Jinja's or an iterator of Python's: true, without length, and used up by looking.
class Iterator final : public Object {
 public:
  Iterator(std::string type, Values items);
  std::string type_name() const override { return type_; }
  bool iterable() const override { return true; }
  Values take_elements() override;
  std::optional<Value> take_first();
  int depth() const override { return depth_; }

 private:
  std::string type_;
  Values items_;
  std::size_t next_ = 0;
  int depth_;
};

// The only thing a template can change.
class Namespace final : public Object {
 public:
  explicit Namespace(Dict attributes) : attributes_(std::move(attributes)) {}
  std::string type_name() const override { return "Namespace"; }
  std::string repr() override;
  std::optional<Value> attribute(const std::string& name, const Value& self) override;
  void set(const std::string& name, Value value);
  void release() override { attributes_ = Dict(); }

 private:
  Dict attributes_;
};

class Cycler final : public Object {
 public:
  explicit Cycler(Values items);
  std::string type_name() const override { return "Cycler"; }
  std::optional<Value> attribute(const std::string& name, const Value& self) override;
  int depth() const override { return depth_; }
  Value next();
  void reset() { position_ = 0; }

 private:
  Values items_;
  std::size_t position_ = 0;
  int depth_;
};

class Joiner final : public Object {
 public:
  explicit Joiner(Value separator);
  std::string type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Value call(Interpreter&, const Arguments&) override;
  int depth() const override { return depth_; }

 private:
  Value separator_;
  bool used_ = false;
  int depth_;
};

// A built-in: a filter's, method's or global's code, with the value it works on.
using NativeCode = Value (*)(Interpreter&, const Value& self, const Arguments& arguments);

class Native final : public Object {
 public:
  Native(std::string name, NativeCode code, Value self = {});
  std::string type_name() const override { return "builtin_function_or_method"; }
  std::string repr() override;
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, const Arguments& arguments) override;
  int depth() const override { return depth_; }

 private:
  std::string name_;
  NativeCode code_;
  Value self_;
  int depth_;
};

Value make_generator(Values items);

}  // namespace backplane::text::jinja
