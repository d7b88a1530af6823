// From a parsed request to what the engine is asked for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/engine/request.h"
#include "core/text/tokenizer.h"
#include "tools/openai/openai_request.h"
#include "tools/prompt.h"

namespace backplane::tools::openai {

// The model that answers. Immutable, for any thread.
struct ServedModel {
  std::shared_ptr<const text::Tokenizer> tokenizer = {};  // may be null: prompts are ids then, and texts are empty
  const ChatPrompt* chat = nullptr;                       // null: there is no chat
  std::vector<TokenId> end_ids = {};                      // by which the model ends its text
};

// One prompt of a request.
struct PreparedPrompt {
  engine::Request request;
  std::string echo = {};  // the prompt's text, where the request wants it back
  // Where in it each token begins, in characters; where the request wants log-probabilities too.
  std::vector<std::size_t> echo_offsets = {};
};

// In the request's order; a chat has one. Throws ApiError{400}, also what api_error() makes of the tokenizer's and the
// template's errors. Lengths and ids are checked by the engine, when it gets them.
std::vector<PreparedPrompt> prepare(const ApiRequest& request, const ServedModel& model);

}  // namespace backplane::tools::openai
