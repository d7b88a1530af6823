#include "trace.h"

#include <array>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

namespace backplane::test {
namespace {

std::vector<TraceLengths> read_trace() {
  std::ifstream file(BACKPLANE_SOURCE_DIR "/../shared/data/traces/AzureLLMInferenceTrace_conv.csv");
  std::vector<TraceLengths> all;
  for (std::string line; std::getline(file, line);) {
    TraceLengths lengths;
    const std::size_t comma = line.find(',');
    if (comma == std::string::npos) continue;
    if (std::sscanf(line.c_str() + comma, ",%u,%u", &lengths.prompt, &lengths.generated) == 2) all.push_back(lengths);
  }
  return all;
}

using Quantiles = std::array<std::pair<double, double>, 6>;
constexpr Quantiles kPrompt = {{{0, 2}, {0.25, 396}, {0.5, 1020}, {0.75, 1189}, {0.95, 4083}, {1, 14050}}};
constexpr Quantiles kGenerated = {{{0, 7}, {0.25, 85}, {0.5, 129}, {0.75, 395}, {0.95, 451}, {1, 1000}}};

std::uint32_t draw(const Quantiles& quantiles, std::mt19937& random) {
  const double u = static_cast<double>(random() % 1000000) / 1000000;
  std::size_t i = 1;
  while (i + 1 < quantiles.size() && u > quantiles[i].first) ++i;
  const auto [from, low] = quantiles[i - 1];
  const auto [to, high] = quantiles[i];
  return static_cast<std::uint32_t>(low + (high - low) * (u - from) / (to - from));
}

}  // namespace

std::vector<TraceLengths> trace_lengths(std::size_t count, std::mt19937& random) {
  const std::vector<TraceLengths> trace = read_trace();
  std::vector<TraceLengths> out(count);
  for (TraceLengths& each : out) {
    each =
        trace.empty() ? TraceLengths{draw(kPrompt, random), draw(kGenerated, random)} : trace[random() % trace.size()];
  }
  return out;
}

}  // namespace backplane::test
