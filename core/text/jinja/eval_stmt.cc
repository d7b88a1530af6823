// How statements execute.
#include "core/text/jinja/interpreter.h"
#include "core/text/jinja/loop.h"
#include "core/text/jinja/template_error.h"

namespace backplane::text::jinja {
namespace {

// The text of a block with a scope of its own, through filters.
Value captured_block(Interpreter& in, const Block& body, const std::vector<FilterCall>& filters, Flow& flow) {
  Interpreter::Entered entered(in, in.scope());
  Value value = Value::string(in.capture([&] { return in.execute(body); }, &flow));
  if (flow != Flow::kNormal) return value;
  for (const FilterCall& filter : filters) value = filter.apply(in, value);
  return value;
}

}  // namespace

Flow DataStmt::execute(Interpreter& in) const {
  in.write(std::string_view(text));
  return Flow::kNormal;
}

Flow OutputStmt::execute(Interpreter& in) const {
  in.write(in.evaluate(*value));
  return Flow::kNormal;
}

Flow SetStmt::execute(Interpreter& in) const {
  Value result = in.evaluate(*value);
  in.at_line(line);
  in.assign(target, result);
  return Flow::kNormal;
}

Flow SetBlockStmt::execute(Interpreter& in) const {
  Flow flow = Flow::kNormal;
  Value value = captured_block(in, body, filters, flow);
  if (flow == Flow::kNormal) in.assign(target, value);
  return flow;
}

Flow FilterBlockStmt::execute(Interpreter& in) const {
  Flow flow = Flow::kNormal;
  Value value = captured_block(in, body, filters, flow);
  if (flow == Flow::kNormal) in.write(value);
  return flow;
}

Flow IfStmt::execute(Interpreter& in) const {
  for (const auto& [condition, block] : branches) {
    if (truthy(in.evaluate(*condition))) return in.execute(block);
  }
  return in.execute(otherwise);
}

Flow ForStmt::execute(Interpreter& in) const {
  if (recursive) in.capture_scopes();  // loop(...) comes back to the scope around
  run(in, in.evaluate(*source), 0);
  return Flow::kNormal;
}

void ForStmt::run(Interpreter& in, const Value& items, int depth) const {
  in.at_line(line);
  Scope& around = in.scope();
  auto loop = std::make_shared<Loop>(*this, around, items, depth);
  Value loop_value = Value::object(loop);
  bool any = false;  // as in Jinja, an iteration that break or continue cuts short doesn't count
  while (loop->advance(in)) {
    Interpreter::Entered entered(in, around);
    in.assign(target, loop->current());
    in.scope().set(kLoopName, loop_value);
    Flow flow = in.execute(body);
    if (flow == Flow::kBreak) break;
    any = any || flow == Flow::kNormal;
  }
  loop->finish();
  if (any) return;
  Interpreter::Entered entered(in, around);
  in.execute(otherwise);
}

Flow WithStmt::execute(Interpreter& in) const {
  // All values are evaluated outside of the new scope.
  Values results;
  for (const auto& [target, value] : values) results.push_back(in.evaluate(*value));
  Interpreter::Entered entered(in, in.scope());
  for (std::size_t i = 0; i < results.size(); ++i) in.assign(values[i].first, results[i]);
  return in.execute(body);
}

Flow MacroStmt::execute(Interpreter& in) const {
  in.capture_scopes();
  in.scope().set(name, Value::object(std::make_shared<Macro>(macro, in.scope())));
  return Flow::kNormal;
}

Flow CallBlockStmt::execute(Interpreter& in) const {
  in.capture_scopes();
  Arguments extra;
  extra.named.emplace_back("caller", Value::object(std::make_shared<Macro>(caller, in.scope())));
  in.write(call->call_with(in, std::move(extra)));
  return Flow::kNormal;
}

Flow UnsupportedStmt::execute(Interpreter&) const { fail(message); }

}  // namespace backplane::text::jinja
