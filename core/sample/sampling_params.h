// How a request's tokens are chosen.
#pragma once

#include <cstdint>

namespace backplane::sample {

// The filters apply in the order top_k, top_p, min_p, each to what the one before has left; bp_sample_args in
// plugins/abi/backplane_plugin.h says what each keeps.
struct SamplingParams {
  double temperature = 0;  // 0: greedy, the largest logit; the filters then change nothing
  std::int32_t top_k = 0;  // 0: all
  double top_p = 1;        // of the probability that top_k has left; 1: all
  double min_p = 0;        // of the best token's probability; 0: all
  std::uint64_t seed = 0;  // two requests with the same seed, prompt and parameters give the same tokens

  bool greedy() const { return temperature == 0; }
};

// Throws kUsage naming the first parameter that is out of its range, and the range.
void validate(const SamplingParams& params);

}  // namespace backplane::sample
