#include "core/sample/sampling_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/base/error.h"

namespace backplane::sample {
namespace {

void require(bool good, std::string_view name, double value, std::string_view advice) {
  if (!good) throw Error(ErrorCode::kUsage, fmt::format("{} can't be {}", name, value), {}, advice);
}

void require_id(TokenId id, std::uint32_t vocab_size, std::string_view name) {
  if (id >= 0 && static_cast<std::uint32_t>(id) < vocab_size) return;
  throw Error(ErrorCode::kUsage, fmt::format("{} has no token {}", name, id), {},
              fmt::format("the vocabulary's ids are 0 to {}", vocab_size - 1));
}

}  // namespace

// NaN compares false, so each range also refuses it.
void validate(const SamplingParams& p) {
  require(p.temperature >= 0 && std::isfinite(p.temperature), "temperature", p.temperature,
          "give 0 for the best token each time, or a positive number such as 0.8");
  require(p.top_k >= 0, "top_k", p.top_k, "give the number of tokens to choose from, or 0 for all");
  require(p.top_p >= 0 && p.top_p <= 1, "top_p", p.top_p, "give a probability between 0 and 1; 1 keeps all tokens");
  require(p.min_p >= 0 && p.min_p <= 1, "min_p", p.min_p, "give a fraction between 0 and 1; 0 keeps all tokens");
  require(p.typical_p > 0 && p.typical_p <= 1, "typical_p", p.typical_p,
          "give a probability above 0 and up to 1; 1 keeps all tokens");
  require(p.repetition_penalty > 0 && std::isfinite(p.repetition_penalty), "repetition_penalty", p.repetition_penalty,
          "give a positive number such as 1.1; 1 is none");
  require(std::abs(p.presence_penalty) <= 2, "presence_penalty", p.presence_penalty,
          "give a number from -2 to 2; 0 is none");
  require(std::abs(p.frequency_penalty) <= 2, "frequency_penalty", p.frequency_penalty,
          "give a number from -2 to 2; 0 is none");
  for (const auto& [id, bias] : p.logit_bias) {
    require(std::abs(bias) <= 100, fmt::format("logit_bias of token {}", id), bias, "give a number from -100 to 100");
  }
  if (std::any_of(p.bad_words.begin(), p.bad_words.end(), [](const auto& word) { return word.empty(); })) {
    throw Error(ErrorCode::kUsage, "bad_words can't have a word without tokens");
  }
}

void validate(const SamplingParams& params, std::uint32_t vocab_size) {
  validate(params);
  for (const auto& [id, bias] : params.logit_bias) require_id(id, vocab_size, "logit_bias");
  for (const TokenId id : params.allowed_ids) require_id(id, vocab_size, "allowed_ids");
  for (const auto& word : params.bad_words) {
    for (const TokenId id : word) require_id(id, vocab_size, "bad_words");
  }
}

}  // namespace backplane::sample
