// How a request's tokens are chosen.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/base/ids.h"

namespace backplane::sample {

// sampler.h says in which order these apply, and to what.
struct SamplingParams {
  double temperature = 0;  // 0: greedy, the largest logit; the filters then change nothing
  std::int32_t top_k = 0;  // 0: all
  double top_p = 1;        // 0 to 1; 1: all
  double min_p = 0;        // 0 to 1, of the best token's probability; 0: all
  double typical_p = 1;    // more than 0, at most 1; 1: all

  double repetition_penalty = 1;                     // more than 0; 1: none
  double presence_penalty = 0;                       // -2 to 2
  double frequency_penalty = 0;                      // -2 to 2
  std::map<TokenId, double> logit_bias = {};         // each -100 to 100, as the OpenAI API has it
  std::vector<TokenId> allowed_ids = {};             // no other token may come; empty: all may
  std::vector<std::vector<TokenId>> bad_words = {};  // runs of tokens, none of which may be completed

  // Two requests with the same seed, prompt and parameters give the same tokens, whatever they run beside.
  std::uint64_t seed = 0;
  // Which of several answers to one prompt this is: with one seed, each draws other random numbers.
  std::uint32_t choice = 0;

  bool greedy() const { return temperature == 0; }
};

// Throws kUsage naming the first parameter that is out of its range, and the range.
void validate(const SamplingParams& params);
// Alike for ids that a vocabulary doesn't have.
void validate(const SamplingParams& params, std::uint32_t vocab_size);

}  // namespace backplane::sample
