#include "core/sample/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "core/base/error.h"

namespace backplane::sample {

void check_logits(std::span<const double> logits) {
  bool possible = false;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == std::numeric_limits<double>::infinity()) {
      throw Error(ErrorCode::kDevice,
                  std::string("the model gave ") + (std::isnan(logits[i]) ? "NaN" : "infinity") + " as a logit",
                  "token " + std::to_string(i), "the weights may be broken: try another device, or inspect the file");
    }
    possible |= logits[i] > -std::numeric_limits<double>::infinity();
  }
  if (!possible) {
    throw Error(ErrorCode::kDevice, "the model gave no possible token: all logits are -infinity", {},
                "the weights may be broken: try another device, or inspect the file");
  }
}

double log_sum_exp(std::span<const double> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - most);
  return most + std::log(sum);
}

std::vector<double> log_softmax(std::span<const double> logits) {
  const double total = log_sum_exp(logits);
  std::vector<double> out(logits.begin(), logits.end());
  for (double& value : out) value -= total;
  return out;
}

double token_logprob(std::span<const double> logits, TokenId id) {
  return logits[static_cast<std::size_t>(id)] - log_sum_exp(logits);
}

std::vector<TokenLogit> top_logits(std::span<const double> logits, std::size_t k) {
  RankedTokens ranked(logits);
  std::vector<TokenLogit> top(std::min(k, ranked.size()));
  for (std::size_t i = 0; i < top.size(); ++i) {
    const TokenId id = ranked[i];
    top[i] = {id, logits[static_cast<std::size_t>(id)]};
  }
  return top;
}

std::vector<TokenLogprob> top_logprobs(std::span<const double> logits, std::size_t k) {
  std::vector<TokenLogprob> top;
  if (k == 0) return top;
  const double total = log_sum_exp(logits);
  for (const auto& [id, logit] : top_logits(logits, k)) top.push_back({id, logit - total});
  return top;
}

RankedTokens::RankedTokens(std::span<const double> logits) : logits_(logits), ids_(logits.size()) {
  std::iota(ids_.begin(), ids_.end(), 0);
}

void RankedTokens::sort_to(std::size_t n) {
  const auto before = [this](TokenId a, TokenId b) {
    const double x = logits_[static_cast<std::size_t>(a)], y = logits_[static_cast<std::size_t>(b)];
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) == std::isnan(y) ? a < b : std::isnan(y);
    return x != y ? x > y : a < b;
  };
  // Growing by a factor keeps the passes over what is unsorted few, however the ranks are asked for.
  const std::size_t end = std::min(ids_.size(), std::max({n, std::size_t{64}, sorted_ * 8}));
  const auto from = ids_.begin() + static_cast<std::ptrdiff_t>(sorted_);
  const auto to = ids_.begin() + static_cast<std::ptrdiff_t>(end);
  if (to != ids_.end()) std::nth_element(from, to, ids_.end(), before);
  std::sort(from, to, before);
  sorted_ = end;
}

}  // namespace backplane::sample
