// Ranked tokens with a weight each, walked bucket by bucket.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "core/sample/ranked_tokens.h"

namespace backplane::sample {

class RankedWeights {
 public:
  // A rank, the sum of the weights of all ranks before it, and the token that a walk stopped at; -1 when none did.
  struct Place {
    std::size_t rank = 0;
    double sum = 0;
    TokenId id = -1;
  };

  explicit RankedWeights(RankedTokens ranked)
      : ranked_(std::move(ranked)),
        weights_(std::make_unique_for_overwrite<double[]>(ranked_.size())),
        sums_(RankedTokens::kBuckets) {}

  // Once for each token, before anything else.
  void set_weight(TokenId id, double weight) {
    weights_[static_cast<std::size_t>(id)] = weight;
    sums_[ranked_.bucket_of(id)] += weight;
  }
  double weight(TokenId id) const { return weights_[static_cast<std::size_t>(id)]; }
  const RankedTokens& ranked() const { return ranked_; }

  // Goes through the ranks below `limit` and stops at the first token that accept(id, place) refuses. A bucket for
  // which whole(bucket, place after it) holds is passed over unsorted: its tokens must all be acceptable.
  template <class Whole, class Accept>
  Place walk(std::size_t limit, Whole whole, Accept accept) const {
    Place at;
    for (std::size_t bucket = 0; bucket < RankedTokens::kBuckets && at.rank < limit; ++bucket) {
      if (ranked_.bucket_size(bucket) == 0) continue;
      const Place after{.rank = at.rank + ranked_.bucket_size(bucket), .sum = at.sum + sums_[bucket]};
      if (after.rank <= limit && whole(bucket, after)) {
        at = after;
        continue;
      }
      for (const TokenId id : ranked_.first_of_bucket(bucket, limit - at.rank)) {
        if (!accept(id, at)) return {.rank = at.rank, .sum = at.sum, .id = id};
        at = {.rank = at.rank + 1, .sum = at.sum + weight(id)};
      }
    }
    return at;
  }

 private:
  RankedTokens ranked_;
  std::unique_ptr<double[]> weights_;  // by id
  std::vector<double> sums_;           // by bucket
};

}  // namespace backplane::sample
