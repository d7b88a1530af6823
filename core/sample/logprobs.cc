#include "core/sample/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "core/base/error.h"
#include "core/sample/ranked_tokens.h"
#include "core/sample/rows.h"

namespace backplane::sample {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

[[noreturn]] void refuse(std::span<const double> logits) {
  const auto bad = std::find_if(logits.begin(), logits.end(), [](double logit) { return !(logit < kInfinity); });
  throw Error(ErrorCode::kDevice,
              std::string("the model gave ") + (std::isnan(*bad) ? "NaN" : "infinity") + " as a logit",
              "token " + std::to_string(bad - logits.begin()),
              "the weights may be broken: try another device, or inspect the file");
}

}  // namespace

void check_logits(std::span<const double> logits) {
  const Extremes range = extremes(logits);
  if (range.nan || range.best == kInfinity) refuse(logits);
  if (range.best == -kInfinity) {
    throw Error(ErrorCode::kDevice, "the model gave no possible token: all logits are -infinity", {},
                "the weights may be broken: try another device, or inspect the file");
  }
}

double log_sum_exp(std::span<const double> logits) {
  const double most = extremes(logits).best;
  return most + std::log(sum_of_exp(logits, most));
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

TokenReport report_token(std::span<const double> logits, TokenId id, std::size_t k) {
  const double total = log_sum_exp(logits);
  TokenReport report{.logprob = logits[static_cast<std::size_t>(id)] - total, .top = {}};
  if (k == 0) return report;
  for (const auto& [each, logit] : top_logits(logits, k)) {
    if (logit == -kInfinity) break;
    report.top.push_back({each, logit - total});
  }
  return report;
}

}  // namespace backplane::sample
