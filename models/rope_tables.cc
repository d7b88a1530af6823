#include "models/rope_tables.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/error.h"

namespace backplane::models {
namespace {

using formats::RopeSettings;

std::vector<double> plain(double theta, std::uint32_t n_dims) {
  std::vector<double> inv_freq(n_dims / 2);
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    inv_freq[i] = std::pow(theta, -2.0 * static_cast<double>(i) / n_dims);
  }
  return inv_freq;
}

std::uint64_t original_context(const RopeSettings& s, std::uint64_t max_context) {
  return s.original_max_position_embeddings.value_or(max_context);
}

// The base grows with the length, so that the longest wave spans it.
double dynamic_theta(const RopeSettings& s, std::uint32_t n_dims, std::uint64_t max_context, std::uint64_t length) {
  const double stretch = s.factor * static_cast<double>(length) / static_cast<double>(max_context) - (s.factor - 1);
  return s.theta * std::pow(stretch, n_dims / (n_dims - 2.0));
}

double yarn_magnitude(double factor, double mscale = 1) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

// Below `low` waves are short enough to stay; above `high` they are interpolated; between, a ramp.
RopeTable yarn(const RopeSettings& s, std::uint32_t n_dims, std::uint64_t max_context) {
  const double original = static_cast<double>(original_context(s, max_context));
  const auto dimension_of = [&](double rotations) {
    return n_dims * std::log(original / (rotations * 2 * std::numbers::pi)) / (2 * std::log(s.theta));
  };
  double low = dimension_of(s.beta_fast.value_or(32)), high = dimension_of(s.beta_slow.value_or(1));
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, n_dims - 1.0);
  if (low == high) high += 0.001;
  RopeTable table{plain(s.theta, n_dims), 1};
  for (std::size_t i = 0; i < table.inv_freq.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    table.inv_freq[i] = table.inv_freq[i] / s.factor * ramp + table.inv_freq[i] * (1 - ramp);
  }
  if (s.mscale && s.mscale_all_dim) {
    table.scale = yarn_magnitude(s.factor, *s.mscale) / yarn_magnitude(s.factor, *s.mscale_all_dim);
  } else {
    table.scale = yarn_magnitude(s.factor);
  }
  return table;
}

RopeTable longrope(const RopeSettings& s, std::uint32_t n_dims, std::uint64_t max_context, std::uint64_t length) {
  const std::uint64_t original = original_context(s, max_context);
  const std::vector<double>& divisors = length > original ? s.long_factor : s.short_factor;
  RopeTable table{plain(s.theta, n_dims), 1};
  if (divisors.size() != table.inv_freq.size()) {
    throw Error(ErrorCode::kBadFile, "longrope factors don't match the rotated dimensions", "rope settings");
  }
  for (std::size_t i = 0; i < divisors.size(); ++i) table.inv_freq[i] /= divisors[i];
  const double factor = s.factor > 1 ? s.factor : static_cast<double>(max_context) / static_cast<double>(original);
  if (factor > 1) table.scale = std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original)));
  return table;
}

// Long waves are stretched by the factor, short ones stay, those between are blended.
RopeTable llama3(const RopeSettings& s, std::uint32_t n_dims, std::uint64_t max_context) {
  const double original = static_cast<double>(original_context(s, max_context));
  const double low = s.low_freq_factor.value_or(1), high = s.high_freq_factor.value_or(4);
  RopeTable table{plain(s.theta, n_dims), 1};
  for (double& f : table.inv_freq) {
    const double wave = 2 * std::numbers::pi / f;
    if (wave > original / low) {
      f /= s.factor;
    } else if (wave >= original / high) {
      const double smooth = (original / wave - low) / (high - low);
      f = (1 - smooth) * f / s.factor + smooth * f;
    }
  }
  return table;
}

}  // namespace

std::uint32_t stretched_context(const RopeSettings& s, std::uint32_t max_context) {
  if (s.type != "linear" && s.type != "dynamic" && s.type != "yarn") return max_context;  // the config's already is
  const double reach = std::min(s.factor * static_cast<double>(original_context(s, max_context)), 2147483647.0);
  return std::max(max_context, static_cast<std::uint32_t>(reach));
}

std::uint64_t rope_length_class(const RopeSpec& spec, std::uint64_t max_context, std::uint64_t planned_length) {
  const RopeSettings& s = spec.settings;
  if (s.type == "dynamic") return std::max(planned_length, max_context) - max_context;
  if (s.type == "longrope") return planned_length > original_context(s, max_context) ? 1 : 0;
  return 0;
}

std::uint64_t rope_identity(std::span<const RopeSpec> specs, std::uint64_t max_context, std::uint64_t planned_length) {
  const auto alike = [&](std::uint64_t length) {
    return std::all_of(specs.begin(), specs.end(), [&](const RopeSpec& spec) {
      return rope_length_class(spec, max_context, length) == rope_length_class(spec, max_context, planned_length);
    });
  };
  std::uint64_t least = 0, same = planned_length;
  while (least < same) {  // classes never fall as lengths rise
    const std::uint64_t middle = least + (same - least) / 2;
    if (alike(middle)) {
      same = middle;
    } else {
      least = middle + 1;
    }
  }
  return same;
}

RopeTable rope_table(const RopeSpec& spec, std::uint64_t max_context, std::uint64_t planned_length) {
  const RopeSettings& s = spec.settings;
  RopeTable table;
  if (s.type == "default") {
    table.inv_freq = plain(s.theta, spec.n_dims);
  } else if (s.type == "linear") {
    table.inv_freq = plain(s.theta, spec.n_dims);
    for (double& f : table.inv_freq) f /= s.factor;
  } else if (s.type == "dynamic") {
    const std::uint64_t length = std::max(planned_length, max_context);
    table.inv_freq = plain(dynamic_theta(s, spec.n_dims, max_context, length), spec.n_dims);
  } else if (s.type == "yarn") {
    table = yarn(s, spec.n_dims, max_context);
  } else if (s.type == "longrope") {
    table = longrope(s, spec.n_dims, max_context, planned_length);
  } else if (s.type == "llama3") {
    table = llama3(s, spec.n_dims, max_context);
  } else {
    throw Error(ErrorCode::kBadFile, "unknown rope type " + s.type, "rope settings");
  }
  if (!s.frequency_factors.empty()) {
    if (s.frequency_factors.size() != table.inv_freq.size()) {
      throw Error(ErrorCode::kBadFile, "rope frequency factors don't match the rotated dimensions",
                  "rope_freqs.weight");
    }
    for (std::size_t i = 0; i < table.inv_freq.size(); ++i) table.inv_freq[i] /= s.frequency_factors[i];
  }
  if (s.attention_factor) table.scale = *s.attention_factor;
  return table;
}

}  // namespace backplane::models
