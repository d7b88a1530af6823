#include "core/sample/sampling_params.h"

#include <fmt/format.h>

#include <cmath>

#include "core/base/error.h"

namespace backplane::sample {
namespace {

void require(bool good, std::string_view name, double value, std::string_view advice) {
  if (!good) throw Error(ErrorCode::kUsage, fmt::format("{} can't be {}", name, value), {}, advice);
}

}  // namespace

void validate(const SamplingParams& p) {
  // NaN compares false, so each range also refuses it.
  require(p.temperature >= 0 && std::isfinite(p.temperature), "temperature", p.temperature,
          "give 0 for the best token each time, or a positive number such as 0.8");
  require(p.top_k >= 0, "top_k", p.top_k, "give the number of tokens to choose from, or 0 for all");
  require(p.top_p >= 0 && p.top_p <= 1, "top_p", p.top_p, "give a probability between 0 and 1; 1 keeps all tokens");
  require(p.min_p >= 0 && p.min_p <= 1, "min_p", p.min_p, "give a fraction between 0 and 1; 0 keeps all tokens");
}

}  // namespace backplane::sample
