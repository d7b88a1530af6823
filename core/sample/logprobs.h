// Log-probabilities and the best few entries of a row of logits.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/base/ids.h"

namespace backplane::sample {

struct TokenLogprob {
  TokenId id = -1;
  double logprob = 0;
  bool operator==(const TokenLogprob&) const = default;
};

struct TokenLogit {
  TokenId id = -1;
  double logit = 0;
  bool operator==(const TokenLogit&) const = default;
};

// Throws kDevice naming the first token whose logit is NaN or +infinity, or when all are -infinity: no probability can
// be had of such a row. A single -infinity is fine, it is a token that can't come.
void check_logits(std::span<const double> logits);

// log(sum(exp(logits))). Requires: check_logits passes.
double log_sum_exp(std::span<const double> logits);

// The natural logarithm of a token's softmax. Requires: check_logits passes.
double token_logprob(std::span<const double> logits, TokenId id);

// The k largest (all of them when there are fewer), largest first, of equal ones the lowest id first. NaN counts as
// smaller than all.
std::vector<TokenLogit> top_logits(std::span<const double> logits, std::size_t k);

// A token with the best ones beside it, which may or may not contain it.
struct TokenReport {
  double logprob = 0;
  std::vector<TokenLogprob> top;
};
// Log-probabilities over the whole vocabulary, of `id` and of the k best as top_logits orders them. A token that can't
// come has minus infinity, and is never among the best. Requires: check_logits passes.
TokenReport report_token(std::span<const double> logits, TokenId id, std::size_t k);

}  // namespace backplane::sample
