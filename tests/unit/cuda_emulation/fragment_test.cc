// Products of fragments, their loads from shared memory, and the terms that floats are split into for them.
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "backends/cuda/mma.cuh"
#include "tests/unit/cuda_emulation/emulation.h"

namespace {

using backplane::cuda::split;
using backplane::cuda::Terms;

class Fragments : public EmulationTest {};

std::vector<float> small_numbers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 65) - 32) / 8;  // exact everywhere
  return values;
}

/// Sums of products of few small numbers are exact: a lane that holds another element than the ISA says gives another
/// one.
void multiply_and_compare(void (*kernel)(const float*, const float*, float*, int), int depth, int count) {
  const auto k = static_cast<std::size_t>(depth);
  const std::vector<float> a = small_numbers(16 * k, 1), b = small_numbers(3 * k * 8, 2),
                           before = small_numbers(384, 3);
  const DeviceArray<float> on_a(a), on_b(b), on_d(before);
  ASSERT_EQ(launch(1, 32, kernel, on_a.get(), on_b.get(), on_d.get(), count), cudaSuccess);
  const std::vector<float> d = on_d.values();
  for (std::size_t n = 0; n < 3; ++n) {
    for (std::size_t row = 0; row < 16; ++row) {
      for (std::size_t column = 0; column < 8; ++column) {
        const std::size_t at = n * 128 + row * 8 + column;
        float want = before[at];
        for (std::size_t i = 0; i < k && n < static_cast<std::size_t>(count); ++i) {
          want += a[row * k + i] * b[(n * k + i) * 8 + column];
        }
        EXPECT_EQ(d[at], want) << n << " " << row << " " << column;
      }
    }
  }
}

TEST_F(Fragments, OfBfloatsLieAsTheIsaSays) { multiply_and_compare(multiply_fragments_bf16, 16, 3); }
TEST_F(Fragments, OfFloatsLieAsTheIsaSays) { multiply_and_compare(multiply_fragments_tf32, 8, 3); }
TEST_F(Fragments, BeyondTheCountStayAsTheyAre) { multiply_and_compare(multiply_fragments_tf32, 8, 1); }

TEST_F(Fragments, OfFloatsIgnoreTheLowerBits) {
  std::vector<float> a(128), b(192), d(384);
  a[0] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(1.5f) + 0x1fffu);
  b[0] = 1;
  const DeviceArray<float> on_a(a), on_b(b), on_d(d);
  ASSERT_EQ(launch(1, 32, multiply_fragments_tf32, on_a.get(), on_b.get(), on_d.get(), 3), cudaSuccess);
  EXPECT_EQ(on_d.values()[0], 1.5f);
}

// A payload in the lower bits is none, and what comes of the others has the bits that GPUs give it.
TEST_F(Fragments, OfWhatIsNoNumberHaveTheBitsOfTheGpu) {
  std::vector<float> a(128), b(192), d(384);
  a[0] = std::bit_cast<float>(0xffc12345u);
  a[8] = std::bit_cast<float>(0x7f801fffu);
  std::fill(b.begin(), b.begin() + 8, 1.0f);
  const DeviceArray<float> on_a(a), on_b(b), on_d(d);
  ASSERT_EQ(launch(1, 32, multiply_fragments_tf32, on_a.get(), on_b.get(), on_d.get(), 3), cudaSuccess);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(on_d.values()[0]), 0x7fffffffu);
  EXPECT_EQ(on_d.values()[8], std::numeric_limits<float>::infinity());
}

TEST_F(Fragments, AreLoadedByRowsOrByColumns) {
  std::vector<std::uint16_t> elements(256);
  for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<std::uint16_t>(i);
  std::vector<uint4> rows(32);
  std::memcpy(rows.data(), elements.data(), sizeof(uint4) * rows.size());
  const DeviceArray<uint4> in(rows), out(32);
  for (const bool transposed : {false, true}) {
    ASSERT_EQ(launch(1, 32, transposed ? load_fragments<true> : load_fragments<false>, in.get(), out.get()),
              cudaSuccess);
    const std::vector<uint4> words = out.values();
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      const std::uint32_t got[4] = {words[lane].x, words[lane].y, words[lane].z, words[lane].w};
      for (std::uint32_t i = 0; i < 4; ++i) {
        const std::uint32_t across = lane / 4, along = lane % 4 * 2;
        const std::uint32_t first = transposed ? along * 8 + across : across * 8 + along;
        const std::uint32_t second = transposed ? first + 8 : first + 1;
        EXPECT_EQ(got[i], (64 * i + first) | (64 * i + second) << 16) << transposed << " " << lane << " " << i;
      }
    }
  }
}

TEST_F(Fragments, WithoutTheWholeWarpAreUndefined) {
  const DeviceArray<float> a(small_numbers(128, 1)), b(small_numbers(192, 2)), d(small_numbers(384, 3));
  ASSERT_EQ(launch(1, 16, multiply_fragments_tf32, a.get(), b.get(), d.get(), 3), cudaSuccess);
  EXPECT_TRUE(std::isnan(d.values()[0]));
}

float tf32(std::uint32_t bits) { return std::bit_cast<float>(bits & 0xffffe000u); }

TEST(Terms, KeepTheFloatAndItsSign) {
  std::mt19937 random(5);
  for (int i = 0; i < 10000; ++i) {
    const float x = std::bit_cast<float>(0x20000000u + static_cast<std::uint32_t>(random()) % 0x3f000000u) *
                    (i % 2 == 0 ? 1.0f : -1.0f);
    const Terms terms = split(std::bit_cast<std::uint32_t>(x));
    const double high = tf32(terms.high), low = tf32(terms.low);
    EXPECT_NEAR(high + low, x, std::fabs(x) * 0x1p-22) << x;
    EXPECT_GT(high * x, 0) << x;
    EXPECT_GT(low * x, 0) << x;
  }
  const Terms zero = split(0);
  EXPECT_EQ(tf32(zero.high), 0.0f);
  EXPECT_EQ(tf32(zero.low), 0.0f);
}

TEST(Terms, OfInfinityAreInfinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float x : {infinity, -infinity}) {
    const Terms terms = split(std::bit_cast<std::uint32_t>(x));
    EXPECT_EQ(std::bit_cast<float>(terms.high), x) << "whatever the unit does with the lower bits";
    EXPECT_EQ(std::bit_cast<float>(terms.low), x);
  }
  const Terms largest = split(std::bit_cast<std::uint32_t>(std::numeric_limits<float>::max()));
  EXPECT_TRUE(std::isfinite(tf32(largest.high)));
  EXPECT_TRUE(std::isfinite(tf32(largest.low)));
}

TEST(Terms, OfWhatIsNoNumberAreNone) {
  for (const std::uint32_t bits : {0x7fc00000u, 0x7fffffffu, 0xffffffffu, 0x7fffe000u, 0x7f802000u}) {
    const Terms terms = split(bits);
    EXPECT_TRUE(std::isnan(tf32(terms.high))) << std::hex << bits;
    EXPECT_TRUE(std::isnan(tf32(terms.low))) << std::hex << bits;
  }
  EXPECT_TRUE(std::isnan(tf32(split(0x7f800001u).low))) << "of whose bits the first term has none";
}

}  // namespace
