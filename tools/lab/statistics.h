// The few statistics that the lab's figures are made of.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace backplane::lab {

using Point = std::pair<double, double>;  // x, y

// y = intercept + slope x by least squares.
struct Fit {
  double intercept = 0, slope = 0;
  // The part of y's variation that the line explains, 0 to 1; nothing where y doesn't vary.
  std::optional<double> r2 = {};

  double at(double x) const { return intercept + slope * x; }
};

// Nothing for points with fewer than two different x.
std::optional<Fit> fit_line(std::span<const Point> points);

// `part` 0.5: the median; 0.9: what nine of ten values don't exceed. Linear between neighbors. Requires: values.
double quantile(std::span<const double> values, double part);
inline double median(std::span<const double> values) { return quantile(values, 0.5); }
// What counts of repeated times: whatever else a machine does makes a step slower, never faster. Requires: values.
inline double fastest(std::span<const double> values) { return quantile(values, 0); }

}  // namespace backplane::lab
