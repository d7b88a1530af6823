#include "core/sample/sampler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/error.h"
#include "core/sample/logprobs.h"
#include "core/sample/philox.h"
#include "core/sample/rows.h"

namespace backplane::sample {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A row that the model gave was fine; what became of it may not be.
void check_adjusted(double best) {
  if (best == -kInfinity) {
    throw Error(ErrorCode::kUsage, "no token may come here: the request forbids all that the model can say", {},
                "allow more with allowed_ids, bad_words or min_tokens");
  }
  if (best == kInfinity) {
    throw Error(ErrorCode::kUsage, "the penalties make a logit infinite", {}, "give a larger repetition_penalty");
  }
}

SamplingParams checked(const SamplingParams& params) {
  validate(params);
  return params;
}

}  // namespace

Sampler::Sampler(const SamplingParams& params, Request request)
    : params_(checked(params)), penalties_(params, request.prompt) {
  if (!params.allowed_ids.empty()) constraints_.push_back(only(params.allowed_ids));
  if (!params.bad_words.empty()) constraints_.push_back(no_words(params.bad_words, request.prompt));
  if (request.min_tokens > 0 && !request.end_ids.empty()) {
    constraints_.push_back(none_before(std::move(request.end_ids), request.min_tokens));
  }
}

TokenId Sampler::sample(std::span<const double> logits) const {
  std::vector<double> storage;
  const std::span<const double> row = adjusted(logits, storage);
  if (params_.greedy()) return argmax(row);
  const std::uint64_t counter = std::uint64_t{params_.choice} << 32 | accepted_;
  return Candidates(row, params_).draw(uniform(params_.seed, counter));
}

std::vector<TokenProbability> Sampler::distribution(std::span<const double> logits) const {
  std::vector<double> storage;
  const std::span<const double> row = adjusted(logits, storage);
  if (params_.greedy()) return {{argmax(row), 1.0}};
  return Candidates(row, params_).left();
}

bool Sampler::takes_largest() const {
  return params_.greedy() && constraints_.empty() && params_.logit_bias.empty() && !penalties_.any();
}

void Sampler::accept(TokenId id) {
  ++accepted_;
  penalties_.accept(id);
  for (const auto& constraint : constraints_) constraint->accept(id);
}

// The row after steps 1 to 3: as it is, or in `storage`.
std::span<const double> Sampler::adjusted(std::span<const double> logits, std::vector<double>& storage) const {
  check_logits(logits);
  if (constraints_.empty() && params_.logit_bias.empty() && !penalties_.any()) return logits;
  storage.assign(logits.begin(), logits.end());
  for (const auto& constraint : constraints_) constraint->mask(storage);
  for (const auto& [id, bias] : params_.logit_bias) storage[static_cast<std::size_t>(id)] += bias;
  penalties_.apply(storage);
  check_adjusted(extremes(storage).best);
  return storage;
}

TokenId argmax(std::span<const double> logits) {
  return static_cast<TokenId>(std::find(logits.begin(), logits.end(), extremes(logits).best) - logits.begin());
}

}  // namespace backplane::sample
