#include "tools/lab/statistics.h"

#include <gtest/gtest.h>

namespace backplane::lab {
namespace {

TEST(Statistics, FitsALine) {
  const std::vector<Point> exact = {{1, 5}, {2, 7}, {4, 11}};  // 3 + 2 x
  const auto fit = fit_line(exact);
  ASSERT_TRUE(fit);
  EXPECT_NEAR(fit->intercept, 3, 1e-12);
  EXPECT_NEAR(fit->slope, 2, 1e-12);
  EXPECT_NEAR(fit->r2.value(), 1, 1e-12);
  EXPECT_NEAR(fit->at(10), 23, 1e-12);
}

// Anscombe's first set: 3.00 + 0.500 x, R² 0.67 (F. J. Anscombe, Graphs in Statistical Analysis, 1973).
TEST(Statistics, AgreesWithAnscombe) {
  const std::vector<Point> points = {{10, 8.04}, {8, 6.95}, {13, 7.58},  {9, 8.81}, {11, 8.33}, {14, 9.96},
                                     {6, 7.24},  {4, 4.26}, {12, 10.84}, {7, 4.82}, {5, 5.68}};
  const auto fit = fit_line(points);
  ASSERT_TRUE(fit);
  EXPECT_NEAR(fit->intercept, 3.0001, 1e-4);
  EXPECT_NEAR(fit->slope, 0.5001, 1e-4);
  EXPECT_NEAR(fit->r2.value(), 0.6665, 1e-4);
}

TEST(Statistics, KnowsWhereThereIsNoLine) {
  EXPECT_FALSE(fit_line({}));
  const std::vector<Point> one = {{3, 4}}, above = {{3, 4}, {3, 8}}, level = {{1, 4}, {2, 4}, {3, 4}};
  EXPECT_FALSE(fit_line(one));
  EXPECT_FALSE(fit_line(above));
  const auto fit = fit_line(level);
  ASSERT_TRUE(fit);
  EXPECT_EQ(fit->slope, 0);
  EXPECT_FALSE(fit->r2);  // nothing varies
}

TEST(Statistics, FindsQuantiles) {
  const std::vector<double> values = {4, 1, 3, 2};
  EXPECT_EQ(median(values), 2.5);
  EXPECT_EQ(quantile(values, 0), 1);
  EXPECT_EQ(quantile(values, 1), 4);
  EXPECT_EQ(fastest(values), 1);
  EXPECT_NEAR(quantile(values, 0.9), 3.7, 1e-12);
  EXPECT_EQ(median(std::vector<double>{7}), 7);
}

}  // namespace
}  // namespace backplane::lab
