#include "core/sample/ranked_tokens.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace backplane::sample {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Range {
  double best = -kInfinity;
  double worst = kInfinity;  // but minus infinity
};

// Lanes, because one running maximum would wait for itself. NaN compares false and is left out.
Range range_of(std::span<const double> values) {
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> best, worst;
  best.fill(-kInfinity);
  worst.fill(kInfinity);
  const auto take = [&](std::size_t lane, double value) {
    best[lane] = value > best[lane] ? value : best[lane];
    const double finite = value > -kInfinity ? value : kInfinity;
    worst[lane] = finite < worst[lane] ? finite : worst[lane];
  };
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) take(lane, values[i + lane]);
  }
  for (; i < values.size(); ++i) take(0, values[i]);
  return {*std::max_element(best.begin(), best.end()), *std::min_element(worst.begin(), worst.end())};
}

}  // namespace

RankedTokens::RankedTokens(std::span<const double> values, double reach)
    : values_(values), buckets_(values.size()), sizes_(kBuckets) {
  const Range range = range_of(values);
  best_ = range.best;
  const double width = std::min(range.best - range.worst, reach);
  // Without a width that a scale can be had of, all but what is infinitely far below is in the first bucket.
  if (width > 1e-280 && width < kInfinity) scale_ = (kBuckets - 1) / width;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bucket = static_cast<std::uint16_t>(bucket_for(values[i]));
    buckets_[i] = bucket;
    ++sizes_[bucket];
  }
}

std::size_t RankedTokens::bucket_for(double value) const {
  // Differences, products and roundings never turn an order around. Infinite values aren't subtracted from themselves.
  const double distance = value >= best_ ? 0 : best_ - value;
  const double place = distance < kInfinity ? distance * scale_ : kInfinity;
  return place < kBuckets - 1 ? static_cast<std::size_t>(static_cast<std::int32_t>(place)) : kBuckets - 1;
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
  std::size_t total = 0;
  for (std::size_t bucket = from; bucket < to; ++bucket) total += sizes_[bucket];
  std::vector<TokenId> ids;
  ids.reserve(total);
  for (std::size_t i = 0; ids.size() < total; ++i) {
    if (buckets_[i] >= from && buckets_[i] < to) ids.push_back(static_cast<TokenId>(i));
  }
  return ids;
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
