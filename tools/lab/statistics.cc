#include "tools/lab/statistics.h"

#include <algorithm>
#include <cmath>

namespace backplane::lab {

std::optional<Fit> fit_line(std::span<const Point> points) {
  if (points.empty()) return std::nullopt;
  const auto count = static_cast<double>(points.size());
  double mean_x = 0, mean_y = 0;
  for (const auto& [x, y] : points) {
    mean_x += x / count;
    mean_y += y / count;
  }
  double xx = 0, xy = 0, yy = 0;
  for (const auto& [x, y] : points) {
    xx += (x - mean_x) * (x - mean_x);
    xy += (x - mean_x) * (y - mean_y);
    yy += (y - mean_y) * (y - mean_y);
  }
  if (!(xx > 0)) return std::nullopt;
  Fit fit{.intercept = mean_y - xy / xx * mean_x, .slope = xy / xx};
  if (yy > 0) fit.r2 = std::clamp(xy * xy / (xx * yy), 0.0, 1.0);
  return fit;
}

double quantile(std::span<const double> values, double part) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const double place = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - std::floor(place)) * (sorted[above] - sorted[below]);
}

}  // namespace backplane::lab
