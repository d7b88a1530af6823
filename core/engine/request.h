// What is asked of the engine, and what it answers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/sample/logprobs.h"
#include "core/sample/sampling_params.h"

namespace backplane::engine {

enum class RequestId : std::uint64_t {};  // never used twice by an engine

struct Request {
  std::vector<TokenId> prompt = {};  // at least one token, all inside the model's vocabulary
  sample::SamplingParams sampling = {};
  std::optional<std::uint32_t> max_tokens = {};  // to generate, at least 1; unset: as many as context and KV cache hold
  std::vector<TokenId> eos_ids = {};  // the tokens by which the model ends its text; no effect with ignore_eos
  bool ignore_eos = false;
  std::vector<TokenId> stop_ids = {};  // further tokens that end it
  std::vector<std::string> stop = {};  // texts that end it; they need the engine to have a tokenizer
  bool include_stop = false;           // the text that ended it is part of the text
  // Nothing of the above ends it before so many tokens: the end tokens can't come, and a stop text counts only where a
  // later token completes it. No more than max_tokens.
  std::uint32_t min_tokens = 0;
  // Set: each token comes with its log-probability, and with this many of the best ones.
  std::optional<std::uint32_t> top_logprobs = {};
};

enum class FinishReason : std::uint8_t {
  kNone,      // not finished
  kStop,      // an end token or a stop string
  kLength,    // max_tokens, or the context is full
  kError,     // see Event::error
  kCanceled,  // by cancel()
};

std::string_view finish_reason_name(FinishReason reason);  // "stop", "length", ...; "" for kNone

// One new token of a request, or its end, or both.
struct Event {
  RequestId request{};
  TokenId token = -1;     // -1 for an end without a token (error, canceled). The token that ends a text is given too.
  std::string text = {};  // now certain; the texts of all events joined are the request's text
  // If asked for: under the model's own distribution, before temperature and filters.
  std::optional<double> logprob = {};
  std::vector<sample::TokenLogprob> top = {};
  FinishReason finish = FinishReason::kNone;
  std::optional<Error> error = {};
};

}  // namespace backplane::engine
