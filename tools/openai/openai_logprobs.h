// Log-probabilities in the two forms that OpenAI has.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/sample/logprobs.h"
#include "core/text/tokenizer.h"
#include "tools/openai/openai_request.h"

namespace backplane::tools::openai {

// A token of a prompt or an answer. A prompt's first one has neither logprob nor top.
struct ScoredToken {
  TokenId id = -1;
  std::optional<double> logprob = {};
  std::vector<sample::TokenLogprob> top = {};
  std::size_t offset = 0;  // of its first character in the choice's text; of a chat's not used
};

// How tokens are called. A token without bytes, of an id that the tokenizer doesn't have, is "token_id:ID".
class TokenNames {
 public:
  explicit TokenNames(std::shared_ptr<const text::Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  // Nothing for one that has no bytes.
  std::optional<std::string_view> bytes(TokenId id) const;
  // In valid UTF-8: what isn't becomes U+FFFD, so that different tokens may look alike.
  std::string text(TokenId id) const;
  // What isn't UTF-8 is "bytes:\xe2\x82", as OpenAI's completions have it.
  std::string unique(TokenId id) const;

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_;
};

// {"content": [{"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}]}], "refusal": null}
Json chat_logprobs(const std::vector<ScoredToken>& tokens, const TokenNames& names);

// {"tokens", "token_logprobs", "top_logprobs": [{TOKEN: LOGPROB}], "text_offset"}. The token itself is among its top
// ones, beside as many others as were asked for.
Json completion_logprobs(const std::vector<ScoredToken>& tokens, const TokenNames& names);

// JSON has no infinity: what can't come has OpenAI's -9999.
double finite_logprob(double logprob);

// Characters of a text in UTF-8, or of the beginning of one.
std::size_t count_characters(std::string_view text);

}  // namespace backplane::tools::openai
