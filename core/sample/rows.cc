#include "core/sample/rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

// These loops are compiled for several instruction sets and the best one is chosen when the program starts. All give
// the same bits: none contracts a product and a sum (see CMakeLists.txt). Sanitizers can't have code run so early.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define BACKPLANE_BEST_INSTRUCTIONS __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define BACKPLANE_BEST_INSTRUCTIONS
#endif

namespace backplane::sample {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kLanes = 16;  // running results, since one alone would wait for itself

}  // namespace

// exp(x) = 2^n exp(r) with x = n ln 2 + r and |r| <= ln(2) / 2, where the series' terms up to r^13 are enough.
BACKPLANE_BEST_INSTRUCTIONS
void exp_each(std::span<double> values) {
  constexpr double kLog2e = 1.4426950408889634;
  // ln 2 in two parts, of which the first has so few bits that its product with n is exact.
  constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr double kRound = 0x1.8p52;  // adding it leaves the nearest integer in the lowest bits
  // Below this n is -1023, whose power of two has the bits of 0.
  constexpr double kLeast = -709.1;
  double* const data = values.data();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = data[i] > kLeast ? data[i] : kLeast;
    const double shifted = x * kLog2e + kRound;
    const double n = shifted - kRound;
    const double r = (x - n * kLn2High) - n * kLn2Low;
    double sum = 1.0 / 6227020800;  // 13!
    sum = sum * r + 1.0 / 479001600;
    sum = sum * r + 1.0 / 39916800;
    sum = sum * r + 1.0 / 3628800;
    sum = sum * r + 1.0 / 362880;
    sum = sum * r + 1.0 / 40320;
    sum = sum * r + 1.0 / 5040;
    sum = sum * r + 1.0 / 720;
    sum = sum * r + 1.0 / 120;
    sum = sum * r + 1.0 / 24;
    sum = sum * r + 1.0 / 6;
    sum = sum * r + 0.5;
    sum = 1 + (r + r * r * sum);  // the small parts first, so that only the last rounding counts
    data[i] = sum * std::bit_cast<double>((std::bit_cast<std::uint64_t>(shifted) + 1023) << 52);
  }
}

double sum_of_exp(std::span<const double> values, double most) {
  std::array<double, kExpBlock> block;
  std::array<double, kLanes> sums{};
  for (std::size_t begin = 0; begin < values.size(); begin += kExpBlock) {
    const std::size_t n = std::min(kExpBlock, values.size() - begin);
    for (std::size_t i = 0; i < n; ++i) block[i] = values[begin + i] - most;
    std::fill(block.begin() + static_cast<std::ptrdiff_t>(n), block.end(), -1e9);
    exp_each(block);
    for (std::size_t i = 0; i < kExpBlock; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += block[i + lane];
    }
  }
  double sum = 0;
  for (const double each : sums) sum += each;
  return sum;
}

BACKPLANE_BEST_INSTRUCTIONS
Extremes extremes(std::span<const double> values) {
  std::array<double, kLanes> best, worst, nan;
  best.fill(-kInfinity);
  worst.fill(kInfinity);
  nan.fill(0);
  // NaN compares false, and so is no extreme.
  const auto take = [&](std::size_t lane, double value) {
    best[lane] = value > best[lane] ? value : best[lane];
    const double finite = value > -kInfinity ? value : kInfinity;
    worst[lane] = finite < worst[lane] ? finite : worst[lane];
    nan[lane] = value == value ? nan[lane] : 1;
  };
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) take(lane, values[i + lane]);
  }
  for (; i < values.size(); ++i) take(0, values[i]);
  return {.best = *std::max_element(best.begin(), best.end()),
          .worst = *std::min_element(worst.begin(), worst.end()),
          .nan = *std::max_element(nan.begin(), nan.end()) > 0};
}

BACKPLANE_BEST_INSTRUCTIONS
void number_each(const Buckets& buckets, std::span<const double> values, std::span<std::uint16_t> numbers) {
  const Buckets constant = buckets;
  for (std::size_t i = 0; i < values.size(); ++i) numbers[i] = constant.of(values[i]);
}

BACKPLANE_BEST_INSTRUCTIONS
std::vector<TokenId> find_between(std::span<const std::uint16_t> numbers, std::size_t from, std::size_t to,
                                  std::size_t total) {
  constexpr std::size_t kBlock = 64;
  std::vector<TokenId> found;
  found.reserve(total);
  const auto first = static_cast<std::uint16_t>(from), width = static_cast<std::uint16_t>(to - from);
  const auto wanted = [=](std::uint16_t number) { return static_cast<std::uint16_t>(number - first) < width; };
  for (std::size_t begin = 0; found.size() < total; begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, numbers.size());
    std::uint16_t any = 0;  // most blocks have none, which is soon seen
    for (std::size_t i = begin; i < end; ++i) any |= wanted(numbers[i]) ? 1 : 0;
    if (any == 0) continue;
    for (std::size_t i = begin; i < end; ++i) {
      if (wanted(numbers[i])) found.push_back(static_cast<TokenId>(i));
    }
  }
  return found;
}

}  // namespace backplane::sample
