#include "core/sample/ranked_tokens.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace backplane::sample {

RankedTokens::RankedTokens(std::span<const double> values, double reach)
    : values_(values), numbers_(values.size()), sizes_(kBuckets) {
  const Extremes range = extremes(values);
  buckets_ = {.best = range.best, .scale = 0, .last = kBuckets - 1};
  const double width = std::min(range.best - range.worst, reach);
  // Without a width that a scale can be had of, all but what is infinitely far below is in the first bucket.
  if (width > 1e-280 && width < std::numeric_limits<double>::infinity()) buckets_.scale = (kBuckets - 1) / width;
  number_each(buckets_, values, numbers_);
  for (const std::uint16_t number : numbers_) ++sizes_[number];
}

bool RankedTokens::before(TokenId a, TokenId b) const {
  const double x = values_[static_cast<std::size_t>(a)], y = values_[static_cast<std::size_t>(b)];
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) == std::isnan(y) ? a < b : std::isnan(y);
  return x != y ? x > y : a < b;
}

std::vector<TokenId> RankedTokens::first_of_bucket(std::size_t bucket, std::size_t n) const {
  std::vector<TokenId> ids = gather(bucket, bucket + 1);
  n = std::min(n, ids.size());
  sort_first(ids, n);
  ids.resize(n);
  return ids;
}

// The tokens of the buckets in [from, to), by id.
std::vector<TokenId> RankedTokens::gather(std::size_t from, std::size_t to) const {
  const auto size = sizes_.begin();
  const std::size_t total =
      std::accumulate(size + static_cast<std::ptrdiff_t>(from), size + static_cast<std::ptrdiff_t>(to), std::size_t{0});
  return find_between(numbers_, from, to, total);
}

void RankedTokens::sort_first(std::vector<TokenId>& ids, std::size_t n) const {
  const auto in_order = [this](TokenId a, TokenId b) { return before(a, b); };
  const auto end = ids.begin() + static_cast<std::ptrdiff_t>(n);
  // Equal values come in their order already.
  if (std::is_sorted(ids.begin(), ids.end(), in_order)) return;
  if (end != ids.end()) std::nth_element(ids.begin(), end, ids.end(), in_order);
  std::sort(ids.begin(), end, in_order);
}

void RankedTokens::sort_to(std::size_t n) {
  // Growing by a factor keeps the passes over the row few, however the ranks are asked for.
  const std::size_t wanted = std::min(size(), std::max({n, std::size_t{64}, first_.size() * 8}));
  while (first_.size() < wanted) {
    const std::size_t missing = wanted - first_.size();
    if (rest_.empty()) {
      const std::size_t from = next_;
      for (std::size_t found = 0; found < missing && next_ < kBuckets; ++next_) found += sizes_[next_];
      rest_ = gather(from, next_);
    }
    const std::size_t count = std::min(missing, rest_.size());
    sort_first(rest_, count);
    const auto end = rest_.begin() + static_cast<std::ptrdiff_t>(count);
    first_.insert(first_.end(), rest_.begin(), end);
    rest_.erase(rest_.begin(), end);
  }
}

}  // namespace backplane::sample
