// From a row of logits to a token.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/ids.h"
#include "core/sample/sampling_params.h"

namespace backplane::sample {

// Draws the tokens of one request as bp_sample_args defines it, so that a device's SAMPLE op draws the same. Has no
// state: the same logits and counter give the same token, in any batch, on any thread.
class Sampler {
 public:
  // Throws kUsage when the parameters are out of range.
  explicit Sampler(const SamplingParams& params);

  // `counter` is the number of the token in its request, from 0. Throws kDevice for logits that give no distribution
  // (check_logits).
  TokenId sample(std::span<const double> logits, std::uint64_t counter) const;

  const SamplingParams& params() const { return params_; }

 private:
  SamplingParams params_;
};

// The id of the largest logit, of equal ones the lowest.
TokenId argmax(std::span<const double> logits);

}  // namespace backplane::sample
