#include "tools/progress.h"

#include <gtest/gtest.h>

namespace backplane::tools {
namespace {

TEST(FormatBytes, UsesDecimalUnits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.0 kB");
  EXPECT_EQ(format_bytes(98362432), "98.4 MB");
  EXPECT_EQ(format_bytes(999'960), "1.0 MB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "18.4 EB");
}

TEST(ProgressLine, FitsTheWidth) {
  for (const unsigned width : {1u, 10u, 40u, 79u, 200u}) {
    for (const std::uint64_t done : {0ull, 50ull, 100ull, 1000ull}) {
      EXPECT_LE(progress_line("loading", done, 100, ProgressUnit::kCount, width).size(), width);
    }
  }
  const std::string half = progress_line("loading", 50, 100, ProgressUnit::kCount, 79);
  EXPECT_NE(half.find(" 50%  50 of 100"), std::string::npos) << half;
  EXPECT_EQ(std::count(half.begin(), half.end(), '#'), 20);
  EXPECT_NE(progress_line("x", 7, 5, ProgressUnit::kCount, 79).find("100%  5 of 5"), std::string::npos);
  EXPECT_EQ(progress_line("x", 1500, 0, ProgressUnit::kBytes, 79), "x  1.5 kB");
}

}  // namespace
}  // namespace backplane::tools
