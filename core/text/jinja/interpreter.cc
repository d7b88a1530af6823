#include "core/text/jinja/interpreter.h"

#include "core/text/jinja/budget.h"
#include "core/text/jinja/builtins.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/template_error.h"

namespace backplane::text::jinja {
namespace {

constexpr std::size_t kBytesOfVariable = 2 * sizeof(std::pair<NameId, Value>);  // a vector may be half empty

}  // namespace

Value* Scope::find(NameId name) {
  charge_steps(variables.size() / 32);
  for (auto& [id, value] : variables) {
    if (id == name) return &value;
  }
  return nullptr;
}

void Scope::set(NameId name, Value value) {
  if (Value* known = find(name)) {
    *known = std::move(value);
  } else {
    if (kept) charge_bytes(kBytesOfVariable);
    variables.emplace_back(name, std::move(value));
  }
}

// One more level of evaluation while it lives.
class Interpreter::Deeper {
 public:
  explicit Deeper(Interpreter& in) : in_(in) {
    charge_steps(1);
    if (in_.depth_ >= in_.limits_.depth) fail("maximum recursion depth exceeded");
    ++in_.depth_;
  }
  ~Deeper() { --in_.depth_; }

 private:
  Interpreter& in_;
};

Interpreter::Interpreter(const Program& program, const Limits& limits, std::function<std::tm()> clock)
    : program_(program), limits_(limits), clock_(std::move(clock)) {}

// Namespaces can hold themselves, and long chains of each other: empty them one by one before any is freed.
Interpreter::~Interpreter() {
  for (auto& object : kept_) object->release();
}

std::string Interpreter::run(Scope variables) {
  std::string output;
  out_ = &output;
  scopes_.push_back(std::move(variables));
  Entered root(*this, scopes_.front());
  execute(program_.body);
  return output;
}

Value Interpreter::evaluate(const Expr& expr) {
  Deeper deeper(*this);
  return expr.evaluate(*this);
}

Flow Interpreter::execute(const Block& block) {
  Deeper deeper(*this);
  for (const auto& statement : block) {
    charge_steps(1);
    line_ = statement->line;
    Flow flow = statement->execute(*this);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  Deeper deeper(*this);
  if (callee.is_undefined()) fail(callee.why_undefined());
  if (!callee.is(Kind::kObject)) fail("'" + type_name(callee) + "' object is not callable");
  std::shared_ptr<Object> alive = callee.as_object();
  return alive->call(*this, arguments);
}

Value Interpreter::look_up(NameId name) {
  for (Scope* scope = scope_; scope; scope = scope->parent) {
    if (Value* found = scope->find(name)) return *found;
  }
  const std::string& text = program_.names[name];
  if (auto global = find_global(text)) return *global;
  return Value::undefined("'" + text + "' is undefined");
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (target.is_tuple) {
    std::size_t wanted = target.parts.size();
    if (value.is_undefined()) fail(value.why_undefined());
    if (!is_iterable(value)) fail("cannot unpack non-iterable " + type_name(value) + " object");
    Elements elements(value);
    if (elements.all().size() > wanted) fail("too many values to unpack (expected " + std::to_string(wanted) + ")");
    if (elements.all().size() < wanted) {
      fail("not enough values to unpack (expected " + std::to_string(wanted) + ", got " +
           std::to_string(elements.all().size()) + ")");
    }
    for (std::size_t i = 0; i < wanted; ++i) assign(target.parts[i], elements.all()[i]);
  } else if (target.attribute.empty()) {
    scope_->set(target.name, value);
  } else {
    Value object = look_up(target.name);
    auto* names = object.is(Kind::kObject) ? dynamic_cast<Namespace*>(object.as_object().get()) : nullptr;
    if (!names) fail("cannot assign attribute on non-namespace object");
    names->set(target.attribute, value);
  }
}

void Interpreter::write(std::string_view text) {
  if (text.size() > limits_.output_bytes - std::min<std::uint64_t>(out_->size(), limits_.output_bytes)) {
    fail("the rendered text is too long");
  }
  append_charged(*out_, text);
}

void Interpreter::write(const Value& value) {
  if (value.is_string()) {
    write(std::string_view(value.as_string()));
  } else {
    write(std::string_view(to_text(value)));
  }
}

std::string Interpreter::capture(const std::function<Flow()>& body, Flow* flow) {
  struct Redirected {
    Redirected(std::string*& out, std::string& to) : out_(out), previous_(std::exchange(out, &to)) {}
    ~Redirected() { out_ = previous_; }
    std::string*& out_;
    std::string* previous_;
  };
  std::string text;
  Redirected redirected(out_, text);
  Flow result = body();
  if (flow) *flow = result;
  return text;
}

void Interpreter::capture_scopes() {
  ++captures_;
  for (; kept_scopes_ < scopes_.size(); ++kept_scopes_) {
    Scope& scope = scopes_[kept_scopes_];
    charge_bytes(sizeof(Scope) + scope.variables.size() * kBytesOfVariable);
    scope.kept = true;
  }
}

Interpreter::Entered::Entered(Interpreter& in, Scope& parent)
    : in_(in), previous_(in.scope_), made_(true), captures_(in.captures_) {
  in.scopes_.push_back(Scope{&parent, {}, false});
  in.scope_ = &in.scopes_.back();
}

Interpreter::Entered::Entered(Interpreter& in, Scope* existing)
    : in_(in), previous_(in.scope_), made_(false), captures_(in.captures_) {
  in.scope_ = existing;
}

// A scope that nothing captured is the last one, as those made after it have left before.
Interpreter::Entered::~Entered() {
  if (made_ && in_.captures_ == captures_) in_.scopes_.pop_back();
  in_.scope_ = previous_;
}

std::optional<Value> Macro::attribute(const std::string& name, const Value&) {
  if (name == "name") return Value::string(body_.name);
  if (name == "catch_kwargs") return Value::boolean(body_.uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(body_.uses_varargs);
  if (name == "caller") return Value::boolean(body_.uses_caller);
  if (name != "arguments") return std::nullopt;
  Values names;
  for (const auto& parameter : body_.parameter_names) names.push_back(Value::string(parameter));
  return Value::list(std::move(names));
}

Value Macro::call(Interpreter& in, const Arguments& arguments) {
  Interpreter::Entered entered(in, scope_);
  bind(in, arguments);
  return Value::string(in.capture([&] { return in.execute(body_.body); }));
}

void Macro::bind(Interpreter& in, Arguments arguments) const {
  std::size_t count = body_.parameters.size();
  std::size_t first_default = count - body_.defaults.size();
  bool found_caller = false;
  auto take_named = [&](const std::string& name) -> std::optional<Value> {
    charge_steps(arguments.named.size());
    for (auto at = arguments.named.begin(); at != arguments.named.end(); ++at) {
      if (at->first != name) continue;
      Value value = at->second;
      arguments.named.erase(at);
      return value;
    }
    return std::nullopt;
  };
  std::vector<std::optional<Value>> given(count);
  for (std::size_t i = 0; i < count; ++i) {
    found_caller = found_caller || body_.parameter_names[i] == "caller";
    given[i] = i < arguments.positional.size() ? arguments.positional[i] : take_named(body_.parameter_names[i]);
  }
  bind_special(in, arguments, found_caller);
  // A default may refer to the parameters before it.
  for (std::size_t i = 0; i < count; ++i) {
    if (!given[i] && i < first_default) {
      given[i] = Value::undefined("parameter '" + body_.parameter_names[i] + "' was not provided");
    }
    in.scope().set(body_.parameters[i], given[i] ? *given[i] : in.evaluate(*body_.defaults[i - first_default]));
  }
}

void Macro::bind_special(Interpreter& in, Arguments& arguments, bool found_caller) const {
  std::string macro = "macro '" + body_.name + "'";
  if (body_.uses_caller && !found_caller) {
    Value caller = Value::undefined("No caller defined");
    for (auto at = arguments.named.begin(); at != arguments.named.end(); ++at) {
      if (at->first != "caller") continue;
      caller = at->second;
      arguments.named.erase(at);
      break;
    }
    in.scope().set(kCallerName, std::move(caller));
  }
  if (body_.uses_kwargs) {
    Dict all;
    for (auto& [name, value] : arguments.named) all.set(Value::string(name), value);
    in.scope().set(kKwargsName, Value::dict(std::move(all)));
  } else if (!arguments.named.empty()) {
    fail(macro + " takes no keyword argument '" + arguments.named.front().first + "'");
  }
  std::size_t taken = std::min(arguments.positional.size(), body_.parameters.size());
  Values rest(arguments.positional.begin() + static_cast<std::ptrdiff_t>(taken), arguments.positional.end());
  if (body_.uses_varargs) {
    in.scope().set(kVarargsName, Value::tuple(std::move(rest)));
  } else if (!rest.empty()) {
    fail(macro + " takes not more than " + std::to_string(body_.parameters.size()) + " argument(s)");
  }
}

}  // namespace backplane::text::jinja
