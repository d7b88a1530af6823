// The tokens of a row in the order of their values, sorted only where somebody looks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/sample/rows.h"

namespace backplane::sample {

// Ranks the largest value first, of equal ones the lowest id first, NaN last. Two passes over the row spread the tokens
// over buckets by their distance from the largest value: what is asked of a few ranks sorts a few buckets. One thread.
class RankedTokens {
 public:
  static constexpr std::size_t kBuckets = 2048;
  // In units of the temperature: what is further below has a probability of less than 1e-27.
  static constexpr double kReach = 64;

  // Buckets divide what is at most `reach` below the largest value; all that is further below shares the last one.
  // `values` must outlive this.
  explicit RankedTokens(std::span<const double> values, double reach = kReach);

  std::size_t size() const { return values_.size(); }
  // The id of rank i, from 0. Requires: i < size(). The cost grows with the largest rank asked for so far.
  TokenId operator[](std::size_t i) {
    if (i >= first_.size()) sort_to(i + 1);
    return first_[i];
  }
  double best() const { return buckets_.best; }  // the largest value; minus infinity when there is none
  bool before(TokenId a, TokenId b) const;

  // All tokens of a bucket rank before all of the next.
  std::size_t bucket_size(std::size_t bucket) const { return sizes_[bucket]; }
  std::size_t bucket_of(TokenId id) const { return numbers_[static_cast<std::size_t>(id)]; }
  // Where a value would be, so that all tokens of the buckets before it have larger values.
  std::size_t bucket_for(double value) const { return buckets_.of(value); }
  // The first n tokens of a bucket, or all when it has fewer, in their order.
  std::vector<TokenId> first_of_bucket(std::size_t bucket, std::size_t n) const;

 private:
  std::vector<TokenId> gather(std::size_t from, std::size_t to) const;
  void sort_first(std::vector<TokenId>& ids, std::size_t n) const;
  void sort_to(std::size_t n);

  std::span<const double> values_;
  Buckets buckets_;
  std::vector<std::uint16_t> numbers_;  // each token's bucket
  std::vector<std::uint32_t> sizes_;
  // For access by rank: what is sorted, what is taken from the buckets but not sorted yet, and the next bucket.
  std::vector<TokenId> first_, rest_;
  std::size_t next_ = 0;
};

}  // namespace backplane::sample
