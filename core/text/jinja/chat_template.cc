#include "core/text/jinja/chat_template.h"

#include <nlohmann/json.hpp>

#include "core/text/jinja/budget.h"
#include "core/text/jinja/interpreter.h"
#include "core/text/jinja/json.h"
#include "core/text/jinja/parser.h"

namespace backplane::text::jinja {
namespace {

std::tm local_time() {
  std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  return parts;
}

// Only what the template mentions is converted.
Scope scope_of(const Program& program, const nlohmann::ordered_json& variables) {
  Scope scope;
  for (std::size_t i = 0; i < program.names.size(); ++i) {
    auto found = variables.find(program.names[i]);
    if (found != variables.end()) scope.variables.emplace_back(static_cast<NameId>(i), value_of_json(*found));
  }
  return scope;
}

}  // namespace

void fail(const std::string& message) { throw Fault(message); }

TemplateError::TemplateError(std::string message, std::string_view template_name, int line)
    : Error(ErrorCode::kBadFile, message, std::string(template_name) + " line " + std::to_string(line)),
      message_(std::move(message)),
      line_(line) {}

ChatTemplate::ChatTemplate(std::string source, std::string name) : source_(std::move(source)), name_(std::move(name)) {
  try {
    program_ = std::make_shared<const Program>(Parser(source_).parse());
  } catch (const SyntaxFault& fault) {
    throw TemplateError(fault.message, name_, fault.line);
  }
}

std::string ChatTemplate::render(const nlohmann::ordered_json& variables) const { return render(variables, {}); }

std::string ChatTemplate::render(const nlohmann::ordered_json& variables, const RenderOptions& options) const {
  if (!variables.is_object()) throw Error(ErrorCode::kUsage, "the variables of a template must be a JSON object");
  int line = 1;
  try {
    Scope scope = scope_of(*program_, variables);
    Budget budget(options.limits);
    Interpreter interpreter(*program_, options.limits, options.clock ? options.clock : local_time);
    try {
      return interpreter.run(std::move(scope));
    } catch (const Fault&) {
      line = interpreter.line();
      throw;
    }
  } catch (const Fault& fault) {
    throw TemplateError(fault.what(), name_, line);
  }
}

}  // namespace backplane::text::jinja
