#include "tools/openai/openai_messages.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace backplane::tools::openai {
namespace {

// The text of one part of a list.
std::string read_part(const Json& value, const std::string& path) {
  const Json nothing = Json::object();
  const Fields part(value.is_object() ? value : nothing, path);
  if (!value.is_object()) part.refuse("type", "is required in every part of a message");
  const std::string type = part.string("type").value_or("");
  const char* key = type == "refusal" ? "refusal" : "text";
  if (type != "text" && type != "refusal" && type != "input_text" && type != "output_text") {
    part.refuse("type", fmt::format("can only be text, not {}", shown(Json(type))));
  }
  const auto text = part.string(key);
  if (!text) part.refuse(key, "is required");
  return *text;
}

std::string read_content(const Fields& message, const std::string& path) {
  const Json* content = message.find("content");
  if (!content) message.refuse("content", "is required");
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    message.refuse("content", fmt::format("must be a string or a list of parts, not {}", shown(*content)));
  }
  std::string text;
  for (std::size_t i = 0; i < content->size(); ++i) {
    if (i > 0) text += '\n';
    text += read_part((*content)[i], fmt::format("{}.content[{}]", path, i));
  }
  return text;
}

ChatMessage read_message(const Json& value, const std::string& path) {
  const Json nothing = Json::object();
  const Fields message(value.is_object() ? value : nothing, path);
  std::string role = message.string("role").value_or("");
  if (role == "developer") role = "system";
  if (role == "tool" || role == "function") message.refuse("role", fmt::format("{} is not supported: no tools", role));
  if (role != "system" && role != "user" && role != "assistant") {
    message.refuse("role", fmt::format("must be system, user or assistant, not {}", shown(Json(role))));
  }
  for (const char* key : {"tool_calls", "function_call", "audio"}) {
    const Json* given = message.find(key);
    if (given && !given->empty()) message.refuse(key, "is not supported");
  }
  return {role, read_content(message, path)};
}

}  // namespace

std::vector<ChatMessage> read_messages(const Fields& body) {
  const Json* list = body.array("messages");
  if (!list || list->empty()) body.refuse("messages", "is required: a list of at least one message");
  std::vector<ChatMessage> messages;
  messages.reserve(list->size());
  for (std::size_t i = 0; i < list->size(); ++i) {
    messages.push_back(read_message((*list)[i], fmt::format("messages[{}]", i)));
  }
  return messages;
}

}  // namespace backplane::tools::openai
