// From a row of logits to a token.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/sample/candidates.h"
#include "core/sample/constraint.h"
#include "core/sample/penalties.h"
#include "core/sample/sampling_params.h"

namespace backplane::sample {

// Draws the tokens of one request. A row goes through these, each of which sees what the one before gave:
//
//   1. allowed_ids, bad_words, min_tokens   what may not come gets minus infinity
//   2. logit_bias                           added
//   3. repetition_penalty, frequency_penalty, presence_penalty (penalties.h)
//      temperature 0 takes the largest of these, of equal ones the lowest id, and is done
//   4. temperature                          divides
//   5. top_k, top_p, min_p, typical_p       leave out, and renormalize
//   6. the draw                             by a random number of seed, choice and the number of the token (philox.h)
//
// From 4 on without typical_p, this is what bp_sample_args defines, so that a device's SAMPLE draws the same tokens.
//
// vLLM and HF transformers agree on this order, but for:
// - min_p: vLLM applies it before top_k and top_p. We follow HF, and the ABI.
// - top_k: where the last of the k has equals beyond, both keep them all. We keep k, those with the lowest ids.
// - bad_words: vLLM looks for the beginning of a word in the output only. We follow HF: in prompt and output.
// - temperature: vLLM takes below 1e-5 for 0 and raises others to 0.01. We, as HF, take it as it is.
// - min_tokens: HF holds back EOS only. We follow vLLM: every token that would end the text.
// - typical_p: vLLM has none. presence_penalty, frequency_penalty: HF has none.
// Log-probabilities that are reported (logprobs.h) are the model's own, before all of this, as vLLM's are by default.
//
// Not copied: constraints have a state. One thread at a time.
class Sampler {
 public:
  struct Request {
    std::span<const TokenId> prompt = {};  // looked at during construction only; ids inside the vocabulary
    std::vector<TokenId> end_ids = {};     // the tokens that would end the text
    std::uint32_t min_tokens = 0;          // none of end_ids before so many other tokens
  };

  // Throws kUsage when the parameters are out of range. Their ids must be inside the vocabulary.
  explicit Sampler(const SamplingParams& params) : Sampler(params, Request{}) {}
  Sampler(const SamplingParams& params, Request request);

  // The next token, which is a function of the parameters, the tokens so far and the logits alone. Throws kDevice for
  // logits that give no distribution (check_logits), kUsage when what the request forbids leaves no token.
  TokenId sample(std::span<const double> logits) const;
  // What sample draws from, best first. Throws as it does.
  std::vector<TokenProbability> distribution(std::span<const double> logits) const;

  // The request goes on with this token.
  void accept(TokenId id);

  // Whether the next token is the largest logit's, whatever the logits are.
  bool takes_largest() const;

  std::uint32_t accepted() const { return accepted_; }
  const SamplingParams& params() const { return params_; }

 private:
  std::span<const double> adjusted(std::span<const double> logits, std::vector<double>& storage) const;

  SamplingParams params_;
  std::vector<std::unique_ptr<Constraint>> constraints_;
  Penalties penalties_;
  std::uint32_t accepted_ = 0;
};

// The id of the largest logit, of equal ones the lowest.
TokenId argmax(std::span<const double> logits);

}  // namespace backplane::sample
