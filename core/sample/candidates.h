// The tokens that may come next and their probabilities, as filters leave fewer and fewer of them.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/sample/ranked_weights.h"
#include "core/sample/sampling_params.h"

namespace backplane::sample {

struct TokenProbability {
  TokenId id = -1;
  double probability = 0;
};

// Starts with the softmax of logits / temperature and applies, in this order, each to what is left, renormalized:
//   top_k      the k best
//   top_p      the shortest run of best tokens whose probability reaches top_p
//   min_p      those with at least min_p times the best one's probability
//   typical_p  those whose -ln p is closest to its mean, the entropy, until their probability reaches typical_p; of
//              several that are as close as the last of them, all (Meister et al., "Locally typical sampling", 2022)
// Each leaves at least one. What is left is always a run of ranks, so that a filter only looks for the run's ends:
// nothing is sorted but around them.
class Candidates {
 public:
  // `logits` must outlive this. Requires: check_logits and validate pass, temperature > 0.
  Candidates(std::span<const double> logits, const SamplingParams& params);
  Candidates(const Candidates&) = delete;
  Candidates& operator=(const Candidates&) = delete;

  // With Z the probability of what is left, the first token, in order of rank, with which it exceeds u Z. u in [0, 1).
  TokenId draw(double u) const;
  // What is left and can come, best first; the probabilities add up to 1.
  std::vector<TokenProbability> left() const;

 private:
  using Place = RankedWeights::Place;

  RankedTokens take_top_k(RankedTokens& ranked, std::size_t k);
  void weigh(RankedTokens ranked);
  void keep_top_p(double top_p);
  void keep_min_p(double min_p);
  void keep_typical(double typical_p);
  void keep_before(const Place& end);
  Place first() const;
  TokenId token(TokenId place) const { return ids_.empty() ? place : ids_[static_cast<std::size_t>(place)]; }
  // How far a token is below the best one, in units of the temperature; and the value of one that far below.
  double distance(TokenId id) const { return (best_ - values_[static_cast<std::size_t>(id)]) / temperature_; }
  double value_at(double distance) const { return best_ - distance * temperature_; }

  double temperature_;
  // The row that all below is about: the logits, or those of the top_k best tokens alone, which ids_ then names.
  std::vector<TokenId> ids_;
  std::vector<double> top_;
  std::span<const double> values_;
  double best_ = 0;
  std::optional<RankedWeights> weights_;  // relative to the best token's 1
  Place begin_, end_;                     // of what is left
};

}  // namespace backplane::sample
