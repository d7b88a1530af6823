#include "tools/lab/figures.h"

#include <gtest/gtest.h>

#include <limits>

namespace backplane::lab {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

TEST(Figures, AreRoundedForTheReport) {
  EXPECT_EQ(figure(1.0 / 3).dump(), "0.333333");
  EXPECT_EQ(figure(212336640).dump(), "212336640");  // a count keeps all its digits
  EXPECT_EQ(figure(0).dump(), "0");
  EXPECT_EQ(figure(1e-7 / 3).dump(), "3.33333e-08");
  EXPECT_TRUE(figure(kNan).is_null());
  EXPECT_TRUE(figure(kInfinity).is_null());
  EXPECT_FALSE(number(figure(kNan)));
  EXPECT_EQ(number(figure(2)).value(), 2);
}

TEST(Figures, HaveUnits) {
  EXPECT_EQ(seconds_text(0.03821), "38.2 ms");
  EXPECT_EQ(seconds_text(0.9996), "1 s");  // rounds up into the next unit
  EXPECT_EQ(seconds_text(71.26), "71.3 s");
  EXPECT_EQ(seconds_text(2.5e-6), "2.5 µs");
  EXPECT_EQ(seconds_text(0), "0");
  EXPECT_EQ(seconds_text(-0.02), "-20 ms");
  EXPECT_EQ(seconds_text(kNan), "no figure");
  EXPECT_EQ(bytes_text(46080), "46.1 kB");
  EXPECT_EQ(bytes_text(12), "12 bytes");
  EXPECT_EQ(flops_text(212e6), "212 MFLOP");
  EXPECT_EQ(flop_rate_text(8.34e9), "8.34 GFLOP/s");
  EXPECT_EQ(byte_rate_text(1.1e9), "1.1 GB/s");
  EXPECT_EQ(percent_text(0.536), "54%");
  EXPECT_EQ(plain_text(1234.4), "1,234");
  EXPECT_EQ(plain_text(-1234567), "-1,234,567");
  EXPECT_EQ(plain_text(200), "200");
  EXPECT_EQ(plain_text(12.5), "12.5");
  EXPECT_EQ(plain_text(0.0312), "0.0312");
  EXPECT_EQ(plain_text(kInfinity), "no figure");
  EXPECT_EQ(count_text(1, "token", "tokens"), "1 token");
  EXPECT_EQ(count_text(19366, "token", "tokens"), "19,366 tokens");
}

TEST(Figures, AreComparedInWords) {
  EXPECT_EQ(times_as(6, 2, "long"), "3 times as long");
  EXPECT_EQ(times_as(1.04, 1, "long"), "about as long");
  EXPECT_EQ(times_as(0.5, 1, "long"), "0.5 times as long");
  EXPECT_EQ(times_as(1, 0, "long"), "a time that can't be compared");
  EXPECT_EQ(times_as(kNan, 1, "long"), "a time that can't be compared");
  EXPECT_EQ(slope_text(31e-6), "rises by 31 µs");
  EXPECT_EQ(slope_text(-2e-3), "falls by 2 ms");
  EXPECT_EQ(slope_text(0), "stays level");
  EXPECT_EQ(r2_text(0.981), "explains 98% of the variation (R² = 0.981)");
  EXPECT_EQ(r2_text({}), "has nothing to explain, as the times don't vary");
}

}  // namespace
}  // namespace backplane::lab
