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

constexpr std::uint32_t kMostAnswers = 128;

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
  // Set: the same of the prompt's tokens, but for the first one; the prompt is then computed whole, whatever the cache
  // has of it.
  std::optional<std::uint32_t> prompt_logprobs = {};
  // Answers to the prompt, which is computed once; 1 to kMostAnswers. Answer i draws with sampling.choice + i.
  std::uint32_t n = 1;
  // Lower ones are served first; of equal ones, who came first. A request that finds no room takes that of a running
  // one with a higher value, which goes on later.
  std::int32_t priority = 0;
  // What others have asked with another salt is not looked for in the cache, nor what they ask later found there.
  std::string cache_salt = {};
};

enum class FinishReason : std::uint8_t {
  kNone,      // not finished
  kStop,      // an end token or a stop string
  kLength,    // max_tokens, or the context is full
  kError,     // see Event::error
  kCanceled,  // by cancel()
};

std::string_view finish_reason_name(FinishReason reason);  // "stop", "length", ...; "" for kNone

// One new token of one of a request's answers, or its end, or both. Each of the n answers has its end.
struct Event {
  RequestId request{};
  std::uint32_t answer = 0;  // from 0 to n - 1
  TokenId token = -1;     // -1 for an end without a token (error, canceled). The token that ends a text is given too.
  std::string text = {};  // now certain; the texts of all events joined are the request's text
  // If asked for: under the model's own distribution, before temperature and filters.
  std::optional<double> logprob = {};
  std::vector<sample::TokenLogprob> top = {};
  std::vector<sample::TokenReport> prompt = {};  // with the first token of answer 0, if asked for: from token 1 on
  FinishReason finish = FinishReason::kNone;
  std::optional<Error> error = {};
};

}  // namespace backplane::engine
