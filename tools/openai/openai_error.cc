#include "tools/openai/openai_error.h"

#include <nlohmann/json.hpp>

namespace backplane::tools::openai {
namespace {

nlohmann::ordered_json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
}

}  // namespace

ApiError::ApiError(int status, std::string_view message, std::string_view param, std::string_view code)
    : std::runtime_error(std::string(message)), status_(status), param_(param), code_(code) {}

nlohmann::ordered_json ApiError::body() const {
  const char* type = status_ >= 500 ? "server_error" : "invalid_request_error";
  return {
      {"error", {{"message", what()}, {"type", type}, {"param", text_or_null(param_)}, {"code", text_or_null(code_)}}}};
}

ApiError api_error(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kUsage:
    case ErrorCode::kBadFile:  // a template that refuses
      return {400, error.what()};
    case ErrorCode::kCapacity:
      return {400, error.what(), {}, "context_length_exceeded"};
    default:
      return {500, error.what(), {}, error_code_name(error.code())};
  }
}

ApiError generation_error(const Error& error) {
  if (error.code() != ErrorCode::kCapacity) return api_error(error);
  return {503, error.what(), {}, error_code_name(error.code())};
}

}  // namespace backplane::tools::openai
