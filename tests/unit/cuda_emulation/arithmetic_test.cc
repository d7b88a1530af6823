// Device arithmetic: warp matrices, and what the host's headers lack.
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "tests/unit/cuda_emulation/emulation.h"

namespace {

class Matrices : public EmulationTest {};

/// A 16 x depth and a depth x 16 matrix of small numbers, multiplied by the kernel and by a loop in double precision.
template <class T>
void multiply_and_compare(void (*kernel)(const T*, const T*, float*, int), T (*convert)(float), double (*back)(T)) {
  constexpr int kDepth = 48;
  std::mt19937 random(3);
  std::uniform_real_distribution<float> values(-2.0f, 2.0f);
  std::vector<T> a(16 * kDepth), b(16 * kDepth);
  for (T& x : a) x = convert(values(random));
  for (T& x : b) x = convert(values(random));
  const DeviceArray<T> on_a(a), on_b(b);
  const DeviceArray<float> out(256);
  ASSERT_EQ(launch(1, 32, kernel, on_a.get(), on_b.get(), out.get(), kDepth), cudaSuccess);
  const std::vector<float> c = out.values();
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 16; ++column) {
      double sum = 0, size = 0;
      for (int k = 0; k < kDepth; ++k) {
        const double product = back(a[row * kDepth + k]) * back(b[column * kDepth + k]);
        sum += product;
        size += std::fabs(product);
      }
      EXPECT_NEAR(c[row * 16 + column], sum, size * kDepth * std::numeric_limits<float>::epsilon())
          << row << " " << column;
    }
  }
}

TEST_F(Matrices, OfHalfs) {
  multiply_and_compare<__half>(
      multiply_tile<__half>, [](float x) { return __float2half(x); }, [](__half x) { return double{__half2float(x)}; });
}
TEST_F(Matrices, OfBfloats) {
  multiply_and_compare<__nv_bfloat16>(
      multiply_tile<__nv_bfloat16>, [](float x) { return __float2bfloat16(x); },
      [](__nv_bfloat16 x) { return double{__bfloat162float(x)}; });
}
// 10 bits of fraction, to the nearest, ties away from zero: what the hardware's conversion does.
double as_tf32(float x) {
  int exponent = 0;
  const double fraction = std::frexp(double{x}, &exponent);
  return std::ldexp(std::round(std::ldexp(fraction, 11)), exponent - 11);
}
TEST_F(Matrices, OfFloatsWithShortFractions) {
  multiply_and_compare<float>(
      multiply_tile_tf32, [](float x) { return x; }, [](float x) { return as_tf32(x); });
}

TEST(Arithmetic, IntegersOfFloatsSaturate) {
  EXPECT_EQ(__float2int_rn(2.5f), 2);
  EXPECT_EQ(__float2int_rn(-3.5f), -4);
  EXPECT_EQ(__float2int_rz(-3.7f), -3);
  EXPECT_EQ(__float2int_ru(3.1f), 4);
  EXPECT_EQ(__float2int_rd(-3.1f), -4);
  EXPECT_EQ(__float2int_rn(1e20f), std::numeric_limits<int>::max());
  EXPECT_EQ(__float2int_rn(-1e20f), std::numeric_limits<int>::min());
  EXPECT_EQ(__float2int_rn(std::nanf("")), 0);
  EXPECT_EQ(__float2uint_rz(-5.0f), 0u);
}

TEST(Arithmetic, BytesAreMultipliedAndPermuted) {
  EXPECT_EQ(__dp4a(0x01ff7f80, 0x02030405, 10), 2 - 3 + 127 * 4 - 128 * 5 + 10);
  EXPECT_EQ(__dp4a(0xff010203u, 0xff040506u, 1u), 255u * 255 + 4 + 10 + 18 + 1);
  EXPECT_EQ(__byte_perm(0x33221100u, 0x77665544u, 0x7531), 0x77553311u);
  EXPECT_EQ(__byte_perm(0x33228100u, 0, 0x9903), 0xffff0033u);  // the sign of byte 1, twice
  EXPECT_EQ(__vsub4(0x05808001u, 0x06018002u), 0xff7f00ffu);
  EXPECT_EQ(__vsubss4(0x05808001u, 0x06018002u), 0xff8000ffu);
  EXPECT_EQ(__vadd4(0xff7f0102u, 0x01010101u), 0x00800203u);
}

TEST(Arithmetic, Bits) {
  EXPECT_EQ(__brev(0x80000001u), 0x80000001u);
  EXPECT_EQ(__brev(0x0000000fu), 0xf0000000u);
  EXPECT_EQ(__ffs(0), 0);
  EXPECT_EQ(__ffs(8), 4);
  EXPECT_EQ(__clz(0), 32);
  EXPECT_EQ(__clz(1), 31);
  EXPECT_EQ(__umulhi(0xffffffffu, 0xffffffffu), 0xfffffffeu);
  EXPECT_EQ(__mulhi(-1, 1), -1);
  EXPECT_EQ(__umul64hi(~0ULL, ~0ULL), ~0ULL - 1);
  EXPECT_EQ(__funnelshift_l(0x80000000u, 1u, 1), 3u);
  EXPECT_EQ(__funnelshift_r(0u, 1u, 1), 0x80000000u);
}

TEST(Arithmetic, NumbersBeatNaN) {
  const float nan = std::nanf("");
  EXPECT_EQ(max(nan, 1.0f), 1.0f);
  EXPECT_EQ(max(1.0f, nan), 1.0f);
  EXPECT_EQ(min(nan, 1.0f), 1.0f);
  EXPECT_EQ(min(1.0f, nan), 1.0f);
  EXPECT_EQ(max(3, 4u), 4u);
  EXPECT_EQ(min(2.0f, 1.0), 1.0);
}

TEST(Arithmetic, HalfsAreRoundedOnce) {
  // 2049 = 2048 + 1 has no half; a sum that was rounded before the addition would be 2048 + 3 -> 2052 instead of 2050.
  EXPECT_EQ(__half2float(__hfma(__float2half(3.0f), __float2half(683.0f), __float2half(1.0f))), 2050.0f);
  EXPECT_EQ(__bfloat162float(__hfma(__float2bfloat16(3.0f), __float2bfloat16(5.0f), __float2bfloat16(0.5f))), 15.5f);
  const __half2 pair = __hfma2(__floats2half2_rn(1, 2), __floats2half2_rn(3, 4), __floats2half2_rn(5, 6));
  EXPECT_EQ(__low2float(pair), 8.0f);
  EXPECT_EQ(__high2float(pair), 14.0f);
  EXPECT_EQ(__half2float(hexp2(__float2half(3.0f))), 8.0f);
  __half sum = __float2half(1.5f);
  EXPECT_EQ(__half2float(atomicAdd(&sum, __float2half(2.0f))), 1.5f);
  EXPECT_EQ(__half2float(sum), 3.5f);
}

}  // namespace
