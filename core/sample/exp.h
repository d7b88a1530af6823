// The exponential function for whole rows: what sampling spends its time on.
#pragma once

#include <cstddef>
#include <span>

namespace backplane::sample {

// How many numbers callers put through exp_each at a time, so that they stay in the first cache.
inline constexpr std::size_t kExpBlock = 512;

// Replaces each value, at most 0, by its exponential: within one unit in the last place, exactly 1 for 0, and 0 for
// what is smaller than e^-708. A value's result depends on nothing else, on any processor. NaN isn't allowed.
void exp_each(std::span<double> values);

// sum(exp(value - most)). Requires: no value is NaN or exceeds `most`, which is finite. Every length has one order of
// summation.
double sum_of_exp(std::span<const double> values, double most);

}  // namespace backplane::sample
