#include "core/sample/candidates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "core/sample/rows.h"

namespace backplane::sample {

Candidates::Candidates(std::span<const double> logits, const SamplingParams& params)
    : temperature_(params.temperature), values_(logits) {
  RankedTokens ranked(logits, RankedTokens::kReach * temperature_);
  const auto top_k = static_cast<std::size_t>(params.top_k);
  if (top_k > 0 && top_k < logits.size()) ranked = take_top_k(ranked, top_k);
  best_ = ranked.best();
  weigh(std::move(ranked));
  if (params.top_p < 1) keep_top_p(params.top_p);
  if (params.min_p > 0) keep_min_p(params.min_p);
  if (params.typical_p < 1) keep_typical(params.typical_p);
}

// Goes on with a row of the k best tokens, in their order, and their ranking.
RankedTokens Candidates::take_top_k(RankedTokens& ranked, std::size_t k) {
  for (std::size_t rank = 0; rank < k; ++rank) {
    ids_.push_back(ranked[rank]);
    top_.push_back(values_[static_cast<std::size_t>(ids_.back())]);
  }
  values_ = top_;
  return RankedTokens(values_, RankedTokens::kReach * temperature_);
}

void Candidates::weigh(RankedTokens ranked) {
  weights_.emplace(std::move(ranked));
  std::array<double, kExpBlock> block;
  for (std::size_t begin = 0; begin < values_.size(); begin += kExpBlock) {
    const std::span<double> part(block.data(), std::min(kExpBlock, values_.size() - begin));
    for (std::size_t i = 0; i < part.size(); ++i) part[i] = (values_[begin + i] - best_) / temperature_;
    exp_each(part);
    for (std::size_t i = 0; i < part.size(); ++i) weights_->set_weight(static_cast<TokenId>(begin + i), part[i]);
  }
  const auto all = [](auto...) { return true; };
  end_ = weights_->walk(values_.size(), all, all);
}

void Candidates::keep_top_p(double top_p) {
  const double enough = top_p * end_.sum;
  keep_before(weights_->walk(
      end_.rank, [=](std::size_t, const Place& after) { return after.sum < enough; },
      [=](TokenId, const Place& at) { return at.rank == 0 || at.sum < enough; }));
}

void Candidates::keep_min_p(double min_p) {
  // One bucket of margin, since a logarithm and an exponential need not undo each other exactly.
  const std::size_t border = weights_->ranked().bucket_for(value_at(-std::log(min_p)));
  keep_before(weights_->walk(
      end_.rank, [=](std::size_t bucket, const Place&) { return bucket + 1 < border; },
      [=, this](TokenId id, const Place&) { return weights_->weight(id) >= min_p; }));
}

void Candidates::keep_typical(double typical_p) {
  const RankedTokens& ranked = weights_->ranked();
  const auto is_left = [&](TokenId id) {
    return weights_->weight(id) > 0 && (end_.id < 0 || ranked.before(id, end_.id));
  };
  // -ln p is the distance plus a constant, and its mean is the entropy: the constant cancels out.
  double mean = 0;
  const auto n = static_cast<TokenId>(values_.size());
  for (TokenId id = 0; id < n; ++id) {
    if (is_left(id)) mean += weights_->weight(id) / end_.sum * distance(id);
  }
  const auto deviation = [&](TokenId id) { return std::abs(distance(id) - mean); };
  std::vector<double> closeness(values_.size(), -std::numeric_limits<double>::infinity());
  for (TokenId id = 0; id < n; ++id) {
    if (is_left(id)) closeness[static_cast<std::size_t>(id)] = -deviation(id);
  }
  RankedWeights by_closeness{RankedTokens(closeness)};
  for (TokenId id = 0; id < n; ++id) by_closeness.set_weight(id, is_left(id) ? weights_->weight(id) : 0);
  const double enough = typical_p * end_.sum;
  const Place last = by_closeness.walk(
      values_.size(), [=](std::size_t, const Place& after) { return after.sum < enough; },
      [&](TokenId id, const Place& at) { return at.sum + by_closeness.weight(id) < enough; });
  if (last.id < 0) return;
  const double most = deviation(last.id);
  const std::size_t first_border = ranked.bucket_for(value_at(mean - most));
  const std::size_t last_border = ranked.bucket_for(value_at(mean + most));
  begin_ = weights_->walk(
      end_.rank, [=](std::size_t bucket, const Place&) { return bucket + 1 < first_border; },
      [&](TokenId id, const Place&) { return distance(id) < mean && deviation(id) > most; });
  keep_before(weights_->walk(
      end_.rank, [=](std::size_t bucket, const Place&) { return bucket + 1 < last_border; },
      [&](TokenId id, const Place&) { return distance(id) <= mean || deviation(id) <= most; }));
}

TokenId Candidates::draw(double u) const {
  const double target = begin_.sum + u * (end_.sum - begin_.sum);
  const Place drawn = weights_->walk(
      end_.rank, [=](std::size_t, const Place& after) { return after.sum <= target; },
      [=, this](TokenId id, const Place& at) {
        return at.rank < begin_.rank || at.sum + weights_->weight(id) <= target;
      });
  // Sums in another order may stay a rounding below what they were.
  return token(drawn.id >= 0 ? drawn.id : first().id);
}

std::vector<TokenProbability> Candidates::left() const {
  std::vector<TokenProbability> out;
  double sum = 0;
  weights_->walk(
      end_.rank, [this](std::size_t, const Place& after) { return after.rank <= begin_.rank; },
      [&](TokenId id, const Place& at) {
        const double weight = weights_->weight(id);
        if (at.rank >= begin_.rank && weight > 0) {
          out.push_back({token(id), weight});
          sum += weight;
        }
        return true;
      });
  for (TokenProbability& each : out) each.probability /= sum;
  return out;
}

Candidates::Place Candidates::first() const {
  return weights_->walk(
      end_.rank, [this](std::size_t, const Place& after) { return after.rank <= begin_.rank; },
      [this](TokenId, const Place& at) { return at.rank < begin_.rank; });
}

// The ranks before `end`, unless a walk went through all that is left.
void Candidates::keep_before(const Place& end) {
  if (end.id >= 0) end_ = end;
}

}  // namespace backplane::sample
