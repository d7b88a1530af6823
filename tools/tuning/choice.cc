#include "tools/tuning/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace backplane::tuning {
namespace {

using Rounds = std::vector<Sample>;  // of one setting
using Part = double Sample::*;

double median(const Rounds& rounds, Part part) {
  std::vector<double> values;
  for (const Sample& each : rounds) values.push_back(each.*part);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// A clock that stands still proves nothing.
bool valid(const Rounds& rounds) {
  return std::all_of(rounds.begin(), rounds.end(), [](const Sample& s) { return s.prefill > 0 && s.decode > 0; });
}

bool wins(const Rounds& other, const Rounds& usual, Part part, Part rest, const Limits& limits) {
  for (std::size_t i = 0; i < usual.size(); ++i) {
    if (!(other[i].*part < usual[i].*part)) return false;
  }
  return median(other, part) * (1 + limits.gain) <= median(usual, part) &&
         median(other, rest) <= median(usual, rest) * (1 + limits.loss);
}

std::string gain_text(const Rounds& other, const Rounds& usual) {
  const auto percent = [&](Part part) { return (median(usual, part) / median(other, part) - 1) * 100; };
  return fmt::format("prompts {:+.0f}%, replies {:+.0f}% in {} rounds", percent(&Sample::prefill),
                     percent(&Sample::decode), usual.size());
}

Choice best_of(const std::vector<Rounds>& all, const Limits& limits) {
  const Rounds& usual = all.front();
  std::optional<std::size_t> best;
  double best_product = 0;
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (!valid(usual) || !valid(all[i])) continue;
    if (!wins(all[i], usual, &Sample::decode, &Sample::prefill, limits) &&
        !wins(all[i], usual, &Sample::prefill, &Sample::decode, limits)) {
      continue;
    }
    const double product = median(all[i], &Sample::prefill) * median(all[i], &Sample::decode);
    if (!best || product < best_product) {
      best = i;
      best_product = product;
    }
  }
  if (!best) return {0, fmt::format("no other setting was clearly faster in {} rounds", usual.size())};
  return {*best, gain_text(all[*best], usual)};
}

}  // namespace

Choice choose(std::size_t settings, const std::function<Sample(std::size_t)>& measure,
              const std::function<double()>& clock, const Limits& limits) {
  if (settings < 2) return {0, "there is nothing else to try"};
  const double start = clock();
  for (std::size_t i = 0; i < settings; ++i) measure(i);
  if ((clock() - start) * (limits.least + 1) > 2 * limits.seconds) {
    return {0, "steps take too long to try other settings"};
  }
  std::vector<Rounds> all(settings);
  for (std::uint32_t round = 0; round < limits.rounds; ++round) {
    if (round >= limits.least && clock() - start > limits.seconds) break;
    for (std::size_t i = 0; i < settings; ++i) {
      const std::size_t setting = round % 2 == 0 ? i : settings - 1 - i;
      all[setting].push_back(measure(setting));
    }
  }
  return best_of(all, limits);
}

}  // namespace backplane::tuning
