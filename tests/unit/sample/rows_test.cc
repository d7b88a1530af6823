#include "core/sample/rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace backplane::sample {
namespace {

double exp_of(double x) {
  exp_each({&x, 1});
  return x;
}

TEST(Exp, IsWithinOneUnitInTheLastPlace) {
  std::mt19937 random(4);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (const double range : {1e-300, 1e-9, 0.3, 1.0, 40.0, 708.0}) {
    for (int i = 0; i < 20'000; ++i) {
      const double x = -range * uniform(random);
      const long double exact = std::exp(static_cast<long double>(x));
      const auto nearest = static_cast<double>(exact);
      const double unit = std::nextafter(nearest, 2.0) - nearest;
      ASSERT_LE(std::abs(static_cast<double>(exp_of(x) - exact)), unit) << x;
    }
  }
}

TEST(Exp, Ends) {
  EXPECT_EQ(exp_of(0), 1);
  EXPECT_EQ(exp_of(-0.0), 1);
  EXPECT_GT(exp_of(-708), 0);
  for (const double x : {-710.0, -745.0, -1e5, -1e300, -std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(exp_of(x), 0) << x;
  }
}

TEST(Exp, DoesNotDependOnThePlaceInTheRow) {
  std::vector<double> row(67);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = -static_cast<double>(i) * 0.37;
  std::vector<double> expected;
  for (const double x : row) expected.push_back(exp_of(x));
  for (std::size_t begin = 0; begin < 20; ++begin) {
    std::vector<double> part(row.begin() + static_cast<std::ptrdiff_t>(begin), row.end());
    exp_each(part);
    for (std::size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], expected[begin + i]);
  }
}

TEST(Extremes, LeaveNanOutAndSayThatItIsThere) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  // In every place, with all lengths of the remainder.
  for (std::size_t size = 1; size < 70; ++size) {
    for (std::size_t at = 0; at < size; ++at) {
      std::vector<double> row(size, 2.0);
      row[at] = 5;
      EXPECT_EQ(extremes(row).best, 5);
      EXPECT_EQ(extremes(row).worst, size == 1 ? 5 : 2);
      EXPECT_FALSE(extremes(row).nan);
      row[at] = -5;
      EXPECT_EQ(extremes(row).worst, -5);
      row[at] = -kInfinity;
      EXPECT_EQ(extremes(row).worst, size == 1 ? kInfinity : 2);
      EXPECT_EQ(extremes(row).best, size == 1 ? -kInfinity : 2);
      row[at] = kNan;
      EXPECT_TRUE(extremes(row).nan);
      EXPECT_EQ(extremes(row).best, size == 1 ? -kInfinity : 2);
      row[at] = kInfinity;
      EXPECT_EQ(extremes(row).best, kInfinity);
    }
  }
}

TEST(FindBetween, GivesEveryIndexInOrder) {
  std::mt19937 random(8);
  for (const std::size_t size : {0u, 1u, 63u, 64u, 65u, 1000u}) {
    std::vector<std::uint16_t> numbers(size);
    for (auto& number : numbers) number = static_cast<std::uint16_t>(random() % 200 * 300);
    for (const auto& [from, to] : {std::pair(0u, 1u), {300u, 301u}, {0u, 65535u}, {900u, 30'000u}, {5u, 5u}}) {
      std::vector<TokenId> expected;
      for (std::size_t i = 0; i < size; ++i) {
        if (numbers[i] >= from && numbers[i] < to) expected.push_back(static_cast<TokenId>(i));
      }
      EXPECT_EQ(find_between(numbers, from, to, expected.size()), expected);
    }
  }
}

}  // namespace
}  // namespace backplane::sample
