#include "core/sample/sampler.h"

#include <algorithm>
#include <cmath>

#include "core/sample/logprobs.h"
#include "core/sample/philox.h"

namespace backplane::sample {
namespace {

// The unnormalized probabilities of a row at a temperature, relative to the best token's 1. Every filter keeps a run of
// the ranks from the first on, so what is left is a number of ranks and their sum; ranks beyond it are never sorted.
class Candidates {
 public:
  Candidates(std::span<const double> logits, double temperature)
      : logits_(logits),
        ranked_(logits),
        temperature_(temperature),
        best_(logits[static_cast<std::size_t>(ranked_[0])]),
        count_(logits.size()) {}

  double weight(std::size_t rank) {
    return std::exp((logits_[static_cast<std::size_t>(ranked_[rank])] - best_) / temperature_);
  }

  void keep_top_k(std::size_t k) {
    if (k == 0 || k >= count_) {
      sum_ = 0;  // in the order of ids: nothing needs sorting yet
      for (const double logit : logits_) sum_ += std::exp((logit - best_) / temperature_);
      return;
    }
    keep([k](std::size_t rank, double, double) { return rank < k; });
  }

  void keep_top_p(double top_p) {
    if (top_p >= 1) return;
    const double enough = top_p * sum_;
    keep([=](std::size_t rank, double, double before) { return rank == 0 || before < enough; });
  }

  void keep_min_p(double min_p) {
    if (min_p <= 0) return;
    keep([=](std::size_t, double weight, double) { return weight >= min_p; });
  }

  // The first rank whose cumulated weight exceeds u times the sum of what is left.
  TokenId draw(double u) {
    const double target = u * sum_;
    double cumulated = 0;
    std::size_t last = 0;
    for (std::size_t rank = 0; rank < count_; ++rank) {
      const double w = weight(rank);
      if (w == 0) break;  // neither this one nor any after it can come
      cumulated += w;
      if (cumulated > target) return ranked_[rank];
      last = rank;
    }
    return ranked_[last];  // rounding left the sum a little above what the weights add up to
  }

 private:
  // Shortens to the run of ranks for which wanted(rank, weight, sum of the weights before) holds.
  template <class Wanted>
  void keep(Wanted wanted) {
    double sum = 0;
    std::size_t rank = 0;
    for (; rank < count_; ++rank) {
      const double w = weight(rank);
      if (!wanted(rank, w, sum)) break;
      sum += w;
    }
    count_ = rank;
    sum_ = sum;
  }

  std::span<const double> logits_;
  RankedTokens ranked_;
  double temperature_;
  double best_;
  std::size_t count_;  // ranks left
  double sum_ = 0;     // of their weights
};

}  // namespace

Sampler::Sampler(const SamplingParams& params) : params_(params) { validate(params_); }

TokenId Sampler::sample(std::span<const double> logits, std::uint64_t counter) const {
  check_logits(logits);
  if (params_.greedy()) return argmax(logits);
  Candidates candidates(logits, params_.temperature);
  candidates.keep_top_k(static_cast<std::size_t>(params_.top_k));
  candidates.keep_top_p(params_.top_p);
  candidates.keep_min_p(params_.min_p);
  return candidates.draw(uniform(params_.seed, counter));
}

TokenId argmax(std::span<const double> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace backplane::sample
