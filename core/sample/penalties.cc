#include "core/sample/penalties.h"

namespace backplane::sample {

Penalties::Penalties(const SamplingParams& params, std::span<const TokenId> prompt)
    : repetition_(params.repetition_penalty), presence_(params.presence_penalty), frequency_(params.frequency_penalty) {
  if (repetition_ == 1) return;  // the others don't look at the prompt
  for (const TokenId id : prompt) counts_.try_emplace(id, 0);
}

void Penalties::apply(std::span<double> logits) const {
  for (const auto& [id, count] : counts_) {
    double& logit = logits[static_cast<std::size_t>(id)];
    logit = logit > 0 ? logit / repetition_ : logit * repetition_;
    logit -= frequency_ * count;
    if (count > 0) logit -= presence_;
  }
}

}  // namespace backplane::sample
