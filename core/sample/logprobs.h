// Log-probabilities and the best few entries of a row of logits.
#pragma once

#include <cstddef>
#include <cstdint>
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

// The natural logarithms of the softmax. Requires: check_logits passes.
std::vector<double> log_softmax(std::span<const double> logits);
double token_logprob(std::span<const double> logits, TokenId id);

// The k largest (all of them when there are fewer), largest first, of equal ones the lowest id first. NaN counts as
// smaller than all.
std::vector<TokenLogit> top_logits(std::span<const double> logits, std::size_t k);
// Alike, with log-probabilities over the whole vocabulary. Requires: check_logits passes.
std::vector<TokenLogprob> top_logprobs(std::span<const double> logits, std::size_t k);

// The ids of a row in the order of top_logits, sorted only as far as they are asked for.
class RankedTokens {
 public:
  // `logits` must outlive this.
  explicit RankedTokens(std::span<const double> logits);

  std::size_t size() const { return ids_.size(); }
  // The id of rank i, from 0. Requires: i < size(). The cost grows with the largest rank asked for so far.
  TokenId operator[](std::size_t i) {
    if (i >= sorted_) sort_to(i + 1);
    return ids_[i];
  }

 private:
  void sort_to(std::size_t n);

  std::span<const double> logits_;
  std::vector<TokenId> ids_;
  std::size_t sorted_ = 0;
};

}  // namespace backplane::sample
