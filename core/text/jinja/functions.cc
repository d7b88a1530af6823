// The global functions: Jinja's own, and those that transformers add.
#include <ctime>

#include "core/text/jinja/budget.h"
#include "core/text/jinja/builtins.h"
#include "core/text/jinja/interpreter.h"
#include "core/text/jinja/template_error.h"

namespace backplane::text::jinja {
namespace {

// dict(mapping_or_pairs, **named)
Dict make_dict(const Arguments& arguments) {
  if (arguments.positional.size() > 1) {
    fail("dict expected at most 1 argument, got " + std::to_string(arguments.positional.size()));
  }
  Dict dict;
  if (!arguments.positional.empty()) {
    const Value& first = arguments.positional[0];
    if (first.is(Kind::kDict)) {
      charge_bytes(first.as_dict().size() * sizeof(Dict::Entry));
      dict = first.as_dict();
    } else {
      for (const Value& pair : Elements(first)) {
        Elements parts(pair);
        if (parts.all().size() != 2) fail("dictionary update sequence element must have length 2");
        dict.set(parts.all()[0], parts.all()[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(Value::string(name), value);
  return dict;
}

Value global_dict(Interpreter&, const Value&, const Arguments& arguments) { return Value::dict(make_dict(arguments)); }

Value global_namespace(Interpreter& in, const Value&, const Arguments& arguments) {
  auto names = std::make_shared<Namespace>(make_dict(arguments));
  in.keep(names);
  return Value::object(names);
}

Value global_range(Interpreter&, const Value&, const Arguments& arguments) {
  Bound bound("range", arguments, {"start", "stop", "step"}, 1);
  Int first = bound.integer(0, 0);
  if (!bound.has(1)) return Value::object(std::make_shared<Range>(0, first, 1));
  return Value::object(std::make_shared<Range>(first, bound.integer(1, 0), bound.integer(2, 1)));
}

Value global_cycler(Interpreter&, const Value&, const Arguments& arguments) {
  return Value::object(std::make_shared<Cycler>(arguments.positional));
}

Value global_joiner(Interpreter&, const Value&, const Arguments& arguments) {
  Bound bound("joiner", arguments, {"sep"});
  return Value::object(std::make_shared<Joiner>(bound.has(0) ? bound.at(0) : Value::string(", ")));
}

Value global_raise_exception(Interpreter&, const Value&, const Arguments& arguments) {
  Bound bound("raise_exception", arguments, {"message"}, 1);
  fail(to_text(bound.at(0)));
}

Value global_strftime_now(Interpreter& in, const Value&, const Arguments& arguments) {
  Bound bound("strftime_now", arguments, {"format"}, 1);
  std::string format = bound.string(0, "");
  if (format.empty()) return Value::string("");
  constexpr std::size_t kMaxFormat = 256;
  constexpr std::size_t kMaxText = 8192;
  if (format.size() > kMaxFormat) fail("the format of strftime_now is too long");
  std::tm now = in.now();
  char text[kMaxText];
  // Behind a blank, so that a format that gives nothing differs from one that doesn't fit.
  std::size_t size = std::strftime(text, sizeof text, (" " + format).c_str(), &now);
  if (size == 0) fail("the text of strftime_now is too long");
  return Value::string(std::string(text + 1, size - 1));
}

}  // namespace

std::optional<Value> find_global(const std::string& name) {
  static const NativeTable table = {
      {"dict", global_dict},
      {"namespace", global_namespace},
      {"range", global_range},
      {"cycler", global_cycler},
      {"joiner", global_joiner},
      {"raise_exception", global_raise_exception},
      {"strftime_now", global_strftime_now},
  };
  auto found = table.find(name);
  if (found == table.end()) return std::nullopt;
  return Value::object(std::make_shared<Native>(name, found->second));
}

}  // namespace backplane::text::jinja
