// What the OpenAI API answers when it can't do what a request asks.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace backplane::tools::openai {

// An answer other than 200.
class ApiError : public std::runtime_error {
 public:
  // `param` names the field of the request that is wrong, `code` is for programs; both may be empty.
  ApiError(int status, std::string_view message, std::string_view param = {}, std::string_view code = {});

  int status() const { return status_; }
  const std::string& param() const { return param_; }
  const std::string& code() const { return code_; }
  // {"error": {"message", "type", "param", "code"}}; null where param or code is empty.
  nlohmann::ordered_json body() const;

 private:
  int status_;
  std::string param_, code_;
};

// 400 for what the caller can change: a wrong request, a template that refuses the messages, more tokens than fit (code
// context_length_exceeded). 500 for all else: clients try those again.
ApiError api_error(const Error& error);
// The same for one that ended a request which had been accepted: that it didn't fit was then not its fault.
ApiError generation_error(const Error& error);

}  // namespace backplane::tools::openai
