// The bodies of POST /v1/completions and /v1/chat/completions: what OpenAI defines, and vLLM's extensions.
//
// Fields that we don't know are ignored, as clients send all kinds. Fields that we know and that ask for what we can't
// do are refused, unless what they say is the default anyway: a "response_format" of {"type": "text"} is fine, a JSON
// schema is not. Known and without effect: user, metadata, store, service_tier, parallel_tool_calls, prediction and
// others that no answer depends on.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/engine/request.h"
#include "tools/prompt.h"

namespace backplane::tools::openai {

using Json = nlohmann::ordered_json;

enum class Endpoint : std::uint8_t { kCompletions, kChat };

// Of a path such as "/v1/completions"; nothing for another.
std::optional<Endpoint> endpoint_of(std::string_view path);

inline constexpr std::uint32_t kMostTopLogprobs = 20;
inline constexpr std::uint32_t kMostChoices = 2048;  // prompts times n
inline constexpr std::uint32_t kCompletionTokens = 16;

using Prompt = std::variant<std::string, std::vector<TokenId>>;

struct ApiRequest {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string model;  // as the client names it; may be empty

  std::vector<Prompt> prompts;               // of completions, at least one
  bool add_special_tokens = true;            // BOS and the like to prompts that are strings
  bool echo = false;                         // of completions: the text begins with the prompt
  bool only_echo = false;                    // with max_tokens 0: the one token that is generated isn't shown
  std::vector<ChatMessage> messages;         // of a chat, at least one
  Json template_variables = Json::object();  // more for the chat template: "chat_template_kwargs"
  bool add_generation_prompt = true;         // of a chat

  // What the engine is to do with each prompt, but for what needs the model: the prompt itself, end ids, bad words. Its
  // seed is to be set where has_seed is false. A chat's max_tokens may be unset: as many as fit. vLLM's cache_salt and
  // priority are here too.
  engine::Request settings;
  bool has_seed = false;
  std::vector<std::string> bad_words;

  bool stream = false;
  bool include_usage = false;     // of a stream: "stream_options"
  bool return_token_ids = false;  // vLLM's: ids beside the texts
};

// Throws ApiError{400} naming the first field that is wrong. Looks at the body alone: whether ids are in the vocabulary
// and lengths fit the model comes later.
ApiRequest parse_request(Endpoint endpoint, const Json& body);

}  // namespace backplane::tools::openai
