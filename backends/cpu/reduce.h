// Sums in one fixed order.
#pragma once

#include <cstdint>

namespace backplane::cpu {

// The sum of term(i) for i < n. Term i goes to lane i % kLanes, and the lanes are added in a fixed tree: the order
// depends on n alone, so neither the batch nor the number of threads changes a bit of the result. Several lanes,
// because a compiler may not reorder a sum by itself, and with one lane each addition would wait for the one before.
template <class Real, class Term>
Real sum_of(std::int64_t n, Term term) {
  constexpr int kLanes = 64 / sizeof(Real);
  Real lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (int lane = 0; i + lane < n; ++lane) lanes[lane] += term(i + lane);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

template <class Real>
Real dot(const Real* a, const Real* b, std::int64_t n) {
  return sum_of<Real>(n, [=](std::int64_t i) { return a[i] * b[i]; });
}

}  // namespace backplane::cpu
