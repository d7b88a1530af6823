// Penalties for tokens that were there before.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

#include "core/base/ids.h"
#include "core/sample/sampling_params.h"

namespace backplane::sample {

// For a token that is n times in the output, as vLLM defines them and, the first one, HF transformers:
//   repetition_penalty r, n > 0 or in the prompt:  logit / r where it is positive, else logit * r, once
//   frequency_penalty f:                           logit - n f
//   presence_penalty p, n > 0:                     logit - p
// in this order. Belongs to one request. One thread at a time.
class Penalties {
 public:
  Penalties(const SamplingParams& params, std::span<const TokenId> prompt);

  bool any() const { return repetition_ != 1 || presence_ != 0 || frequency_ != 0; }
  // Ids are inside the vocabulary.
  void apply(std::span<double> logits) const;
  void accept(TokenId id) {
    if (any()) ++counts_[id];
  }

 private:
  double repetition_, presence_, frequency_;
  std::unordered_map<TokenId, std::uint32_t> counts_;  // in the output; 0 for those of the prompt alone
};

}  // namespace backplane::sample
