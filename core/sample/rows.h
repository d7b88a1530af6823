// Loops over whole rows, which are what sampling spends its time on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/ids.h"

namespace backplane::sample {

// How many numbers callers put through exp_each at a time, so that they stay in the first cache.
inline constexpr std::size_t kExpBlock = 512;

// Replaces each value, at most 0, by its exponential: within one unit in the last place, exactly 1 for 0, and 0 for
// what is smaller than e^-708. A value's result depends on nothing else, on any processor. NaN isn't allowed.
void exp_each(std::span<double> values);

// sum(exp(value - most)). Requires: no value is NaN or exceeds `most`, which is finite. Every length has one order of
// summation.
double sum_of_exp(std::span<const double> values, double most);

// Of what isn't NaN; minus infinity, or infinity, when there is no such value.
struct Extremes {
  double best;   // the largest
  double worst;  // the smallest but minus infinity
  bool nan;      // whether there is NaN
};
Extremes extremes(std::span<const double> values);

// Numbers each value by how far it is below `best`: min(last, floor((best - value) * scale)), and `last` for NaN. With
// the best value's number 0 and no number out of order, whatever overflows. scale >= 0.
struct Buckets {
  double best = 0;
  double scale = 0;
  std::uint16_t last = 0;

  std::uint16_t of(double value) const {
    // Differences, products and roundings never turn an order around. Infinite values aren't subtracted from
    // themselves.
    const double distance = value >= best ? 0 : best - value;
    const double place = distance * scale;
    // The second test is for an infinite distance where the scale is 0.
    return place < last && distance <= kFarthest ? static_cast<std::uint16_t>(static_cast<std::int32_t>(place)) : last;
  }

 private:
  static constexpr double kFarthest = 0x1.fffffffffffffp1023;
};
void number_each(const Buckets& buckets, std::span<const double> values, std::span<std::uint16_t> numbers);

// The indices of the numbers in [from, to), of which there are `total`, ascending.
std::vector<TokenId> find_between(std::span<const std::uint16_t> numbers, std::size_t from, std::size_t to,
                                  std::size_t total);

}  // namespace backplane::sample
