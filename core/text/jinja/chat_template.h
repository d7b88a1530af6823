// The chat template of a model: Jinja, set up as Hugging Face's transformers set it up (an immutable sandbox with
// trim_blocks, lstrip_blocks, loop controls, generation blocks, raise_exception, strftime_now and their tojson).
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/text/jinja/limits.h"
#include "core/text/jinja/template_error.h"

namespace backplane::text::jinja {

struct Program;

struct RenderOptions {
  Limits limits;
  std::function<std::tm()> clock;  // what strftime_now() shows; empty: the local time
};

// Templates come with models and are untrusted: they see the variables and nothing else, and end within Limits.
// Parsed once; cheap to copy; may be rendered by many threads at once.
class ChatTemplate {
 public:
  // Throws TemplateError if it doesn't parse. `name` is what errors call it.
  explicit ChatTemplate(std::string source, std::string name = "chat template");

  // `variables` is an object: messages, add_generation_prompt, tools, bos_token, ... Throws TemplateError.
  std::string render(const nlohmann::ordered_json& variables) const;
  std::string render(const nlohmann::ordered_json& variables, const RenderOptions& options) const;

  const std::string& source() const { return source_; }

 private:
  std::string source_;
  std::string name_;
  std::shared_ptr<const Program> program_;
};

}  // namespace backplane::text::jinja
