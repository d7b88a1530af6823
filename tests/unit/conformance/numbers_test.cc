// The suite's own arithmetic, against the formats' definitions.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/conformance/random.h"

namespace backplane::conformance_test {
namespace {

using namespace conformance;

std::uint16_t bits_of(DType type, double value) {
  std::byte bytes[2];
  write_number(type, value, bytes);
  std::uint16_t bits;
  std::memcpy(&bits, bytes, 2);
  return bits;
}

double number_of(DType type, std::uint16_t bits) {
  std::byte bytes[2];
  std::memcpy(bytes, &bits, 2);
  return read_number(type, bytes);
}

// IEEE 754-2019, table 3.5, and the truncated single.
TEST(Numbers, SixteenBitFormats) {
  EXPECT_EQ(bits_of(DType::kF16, 1), 0x3c00);
  EXPECT_EQ(bits_of(DType::kF16, -2), 0xc000);
  EXPECT_EQ(bits_of(DType::kF16, 65504), 0x7bff);
  EXPECT_EQ(bits_of(DType::kF16, 65520), 0x7c00);  // the tie goes to infinity
  EXPECT_EQ(bits_of(DType::kF16, 65519.99), 0x7bff);
  EXPECT_EQ(bits_of(DType::kF16, 0x1p-24), 0x0001);
  EXPECT_EQ(bits_of(DType::kF16, 0x1p-25), 0x0000);  // ties to even
  EXPECT_EQ(bits_of(DType::kF16, 0x1.8p-24), 0x0002);
  EXPECT_EQ(bits_of(DType::kF16, 0x1p-14), 0x0400);
  EXPECT_EQ(bits_of(DType::kF16, -0.0), 0x8000);
  EXPECT_EQ(bits_of(DType::kF16, 1 + 0x1p-11), 0x3c00);
  EXPECT_EQ(bits_of(DType::kF16, 1 + 0x3p-11), 0x3c02);
  EXPECT_EQ(bits_of(DType::kBF16, 1), 0x3f80);
  EXPECT_EQ(bits_of(DType::kBF16, -3.140625), 0xc049);
  EXPECT_EQ(bits_of(DType::kBF16, std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(number_of(DType::kBF16, 0x0001), 0x1p-133);
  EXPECT_TRUE(std::isnan(number_of(DType::kF16, 0x7e00)));
  EXPECT_TRUE(std::isinf(number_of(DType::kBF16, 0xff80)));
}

// Every bit pattern that is a number comes back.
TEST(Numbers, EveryBitPatternRoundTrips) {
  for (const DType type : {DType::kF16, DType::kBF16}) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const double value = number_of(type, static_cast<std::uint16_t>(bits));
      if (std::isnan(value)) continue;
      ASSERT_EQ(bits_of(type, value), bits) << dtype_name(type);
      ASSERT_EQ(round_to(type, value), value);
    }
  }
}

TEST(Numbers, RoundingToSingleIsTheMachines) {
  Random random(3, "single");
  for (int i = 0; i < 10000; ++i) {
    const double value = std::ldexp(random.normal(), static_cast<int>(random.below(300)) - 160);
    ASSERT_EQ(round_to(DType::kF32, value), static_cast<double>(static_cast<float>(value)));
  }
}

TEST(Numbers, Q8BlocksKeepTheirLargest) {
  Array x({1, 64}), ties;
  for (std::size_t i = 0; i < 64; ++i) x.data[i] = i < 32 ? static_cast<double>(i) - 31 : 0;
  x.data[0] = -127;
  const Array rounded = quantize_activations(x, DType::kQ8_0, ties);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(rounded.data[i], x.data[i]);  // a step of 1 holds them all
  x.data[1] = 0.5;
  quantize_activations(x, DType::kQ8_0, ties);
  EXPECT_EQ(ties.data[1], 1);
  EXPECT_EQ(ties.data[2], 0);
}

}  // namespace
}  // namespace backplane::conformance_test
