#include "core/sample/philox.h"

#include <gtest/gtest.h>

namespace backplane::sample {
namespace {

using Block = std::array<std::uint32_t, 4>;

// The known answers published with Random123 (kat_vectors, philox 4x32 10).
TEST(Philox, GivesThePublishedAnswers) {
  constexpr std::uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformTakesTheHighBitsOfTheFirstTwoWords) {
  EXPECT_EQ(uniform(0, 0), static_cast<double>(0xe169c58d6627e8d5 >> 11) * 0x1p-53);
  const Block block = philox4x32_10({5, 1, 0, 0}, {0x89abcdef, 0x01234567});
  EXPECT_EQ(uniform(0x0123456789abcdef, 0x100000005),
            static_cast<double>((std::uint64_t{block[1]} << 32 | block[0]) >> 11) * 0x1p-53);
}

TEST(Philox, UniformIsFlat) {
  constexpr int kBins = 16, kDraws = 160'000;
  int bins[kBins] = {};
  for (int i = 0; i < kDraws; ++i) {
    const double u = uniform(42, static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    ++bins[static_cast<int>(u * kBins)];
  }
  double chi2 = 0;
  for (const int count : bins) chi2 += (count - 1e4) * (count - 1e4) / 1e4;
  EXPECT_LT(chi2, 37.7);  // the 0.999 quantile for 15 degrees of freedom; the draws are fixed, so it can't flicker
}

}  // namespace
}  // namespace backplane::sample
