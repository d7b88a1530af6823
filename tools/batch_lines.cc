#include "tools/batch_lines.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "tools/json_lines.h"
#include "tools/openai/openai_error.h"
#include "tools/openai/openai_fields.h"

namespace backplane::tools {
namespace {

using Json = nlohmann::ordered_json;

Json parse_line(std::string_view line) try { return parse_object(line); } catch (const Error& error) {
  throw BatchLineError("invalid_json_line", error.what());
}

}  // namespace

BatchLineError::BatchLineError(std::string_view code, std::string_view message, std::string_view custom_id)
    : std::runtime_error(std::string(message)), code_(code), custom_id_(custom_id) {}

BatchLine parse_batch_line(std::string_view text) {
  BatchLine line;
  Json object = parse_line(text);
  const openai::Fields fields(object);
  const auto refuse = [&](const char* code, std::string_view message) {
    throw BatchLineError(code, message, line.custom_id);
  };
  try {
    line.custom_id = fields.string("custom_id").value_or("");
    if (line.custom_id.empty()) refuse("missing_required_parameter", "custom_id must be a string that isn't empty");
    const std::string method = fields.string("method").value_or("POST");
    if (method != "POST") refuse("invalid_method", fmt::format("method must be POST, not {}", method));
    const std::string url = fields.string("url").value_or("");
    const auto endpoint = openai::endpoint_of(url);
    if (!endpoint) {
      refuse("invalid_url",
             fmt::format("url must be /v1/chat/completions or /v1/completions, not {}", openai::shown(Json(url))));
    }
    line.endpoint = *endpoint;
    if (!fields.object("body")) refuse("missing_required_parameter", "body is required");
  } catch (const openai::ApiError& error) {
    refuse("missing_required_parameter", error.what());
  }
  line.body = std::move(object["body"]);
  return line;
}

std::string response_line(std::string_view id, std::string_view custom_id, int status, const Json& body) {
  const Json result = {
      {"id", fmt::format("batch_req_{}", id)},
      {"custom_id", custom_id},
      {"response", {{"status_code", status}, {"request_id", fmt::format("req_{}", id)}, {"body", body}}},
      {"error", nullptr}};
  return json_text(result) + '\n';
}

std::string error_line(std::string_view id, const BatchLineError& error, std::uint64_t line) {
  const Json result = {
      {"id", fmt::format("batch_req_{}", id)},
      {"custom_id", error.custom_id().empty() ? Json() : Json(error.custom_id())},
      {"response", nullptr},
      {"error", {{"code", error.code()}, {"message", fmt::format("line {}: {}", line, error.what())}, {"line", line}}}};
  return json_text(result) + '\n';
}

std::optional<ResultKey> parse_result(std::string_view line) {
  if (!line.starts_with(kResultStart)) return std::nullopt;
  bool in_body = false;
  const auto without_body = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::key && depth == 2) in_body = value == "body";
    return !(in_body && depth >= 2);
  };
  const Json object = Json::parse(line, without_body, false);
  if (!object.is_object()) return std::nullopt;
  ResultKey key;
  try {
    const openai::Fields fields(object);
    key.custom_id = fields.string("custom_id").value_or("");
    const Json* response = fields.object("response");
    key.failed = !response || openai::Fields(*response).integer("status_code", 0, 999) != 200;
    const Json* error = fields.object("error");
    if (!response && !error) return std::nullopt;
    if (error && (key.custom_id.empty() || openai::Fields(*error).string("code") == kDuplicateCustomId)) {
      const auto number = openai::Fields(*error).integer("line", 1, INT64_MAX);
      if (!number) return std::nullopt;
      key.line = static_cast<std::uint64_t>(*number);
      key.custom_id.clear();
    }
  } catch (const openai::ApiError&) {
    return std::nullopt;
  }
  if (key.custom_id.empty() && !key.line) return std::nullopt;
  return key;
}

}  // namespace backplane::tools
