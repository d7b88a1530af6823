// The lines of OpenAI's batch files: requests in, results out.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tools/openai/openai_request.h"

namespace backplane::tools {

// {"custom_id", "method": "POST", "url", "body"}
struct BatchLine {
  std::string custom_id;
  openai::Endpoint endpoint{};
  nlohmann::ordered_json body;
};

// A line that is no request. The codes are OpenAI's: invalid_json_line, missing_required_parameter, invalid_method,
// invalid_url, and duplicate_custom_id, which parse_batch_line doesn't throw.
class BatchLineError : public std::runtime_error {
 public:
  BatchLineError(std::string_view code, std::string_view message, std::string_view custom_id = {});

  const std::string& code() const { return code_; }
  const std::string& custom_id() const { return custom_id_; }  // empty where there is none that can be used

 private:
  std::string code_, custom_id_;
};

inline constexpr const char* kDuplicateCustomId = "duplicate_custom_id";

// Throws BatchLineError.
BatchLine parse_batch_line(std::string_view line);

// What all results begin with, so that the beginning of one can be known.
inline constexpr std::string_view kResultStart = R"({"id":"batch_req_)";

// A result as a line, with its end: {"id": "batch_req_ID", "custom_id", "response": {"status_code", "request_id",
// "body"}, "error": null}. `id` is any text that no other result has.
std::string response_line(std::string_view id, std::string_view custom_id, int status,
                          const nlohmann::ordered_json& body);
// The same with "response": null and "error": {"code", "message", "line"}. An empty custom_id becomes null.
std::string error_line(std::string_view id, const BatchLineError& error, std::uint64_t line);

// What a result tells of the request that it belongs to.
struct ResultKey {
  std::string custom_id;              // empty: see `line`
  std::optional<std::uint64_t> line;  // of a result that belongs to a line of the input, not to an id
  bool failed = false;                // any status but 200
};

// Nothing for what isn't a result. Bodies aren't kept, so that large ones cost little.
std::optional<ResultKey> parse_result(std::string_view line);

}  // namespace backplane::tools
