// The answers to POST /v1/completions and /v1/chat/completions.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/request.h"
#include "core/text/tokenizer.h"
#include "tools/openai/openai_error.h"
#include "tools/openai/openai_logprobs.h"
#include "tools/openai/openai_request.h"

namespace backplane::tools::openai {

// One answer, as its events told it.
struct Choice {
  std::vector<TokenId> ids = {};  // with the one that ended the text
  std::string text = {};
  std::vector<ScoredToken> scored = {};          // one for each id, when the request asks for log-probabilities
  std::vector<sample::TokenReport> prompt = {};  // of a first answer, when it asks for the prompt's too
  engine::FinishReason finish = engine::FinishReason::kNone;
  std::optional<Error> error = {};

  void add(const engine::Event& event);
};

// A prompt with its n answers.
struct AnsweredPrompt {
  std::vector<TokenId> ids = {};
  std::string echo = {};  // this and the next as PreparedPrompt has them
  std::vector<std::size_t> echo_offsets = {};
  std::vector<Choice> choices = {};
};

struct ResponseHead {
  std::string id;            // without its prefix, "cmpl-" or "chatcmpl-"
  std::int64_t created = 0;  // Unix time, s
  std::string model;
};

// The error that the request ends with if one of its choices did; a request has one answer, so the others go unused.
// Canceled ones are none.
std::optional<Error> error_of(const std::vector<AnsweredPrompt>& prompts);

// The body of a 200. Choices are numbered through all prompts; the usage counts each prompt once, and every token
// generated, those that ended a text too. Requires: all choices have ended, with kStop or kLength.
Json response_body(const ApiRequest& request, const ResponseHead& head, const std::vector<AnsweredPrompt>& prompts,
                   const std::shared_ptr<const text::Tokenizer>& tokenizer);

// {"prompt_tokens", "completion_tokens", "total_tokens"}
Json usage_json(std::uint64_t prompt_tokens, std::uint64_t completion_tokens);

}  // namespace backplane::tools::openai
