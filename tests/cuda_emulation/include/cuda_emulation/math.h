// Device math that the host's headers lack. The fast forms are as exact here as the plain ones: a kernel's tolerance
// has to come from CUDA's table of errors, not from what these return. Conversions to integers saturate, and NaN
// becomes 0.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

// Numbers of different types meet in their common one, and a NaN loses against a number, as CUDA's overloads have it.
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  const T x = static_cast<T>(a), y = static_cast<T>(b);
  return x != x || x < y ? y : x;
}
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  const T x = static_cast<T>(a), y = static_cast<T>(b);
  return x != x || y < x ? y : x;
}

inline float rsqrtf(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __exp10f(float x) { return std::pow(10.0f, x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __log10f(float x) { return std::log10(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __tanf(float x) { return std::tan(x); }
inline float __tanhf(float x) { return std::tanh(x); }
inline void __sincosf(float x, float* sine, float* cosine) {
  *sine = std::sin(x);
  *cosine = std::cos(x);
}
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }

namespace cuda_emulation {

template <class To, class From>
To to_integer(From rounded) {
  using Limits = std::numeric_limits<To>;
  if (!(rounded == rounded)) return 0;
  if (rounded >= static_cast<From>(Limits::max())) return Limits::max();
  if (rounded <= static_cast<From>(Limits::min())) return Limits::min();
  return static_cast<To>(rounded);
}

}  // namespace cuda_emulation

inline int __float2int_rn(float x) { return cuda_emulation::to_integer<int>(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return cuda_emulation::to_integer<int>(std::trunc(x)); }
inline int __float2int_ru(float x) { return cuda_emulation::to_integer<int>(std::ceil(x)); }
inline int __float2int_rd(float x) { return cuda_emulation::to_integer<int>(std::floor(x)); }
inline unsigned __float2uint_rn(float x) { return cuda_emulation::to_integer<unsigned>(std::nearbyint(x)); }
inline unsigned __float2uint_rz(float x) { return cuda_emulation::to_integer<unsigned>(std::trunc(x)); }
inline int __double2int_rn(double x) { return cuda_emulation::to_integer<int>(std::nearbyint(x)); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }

inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __ffsll(long long x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1; }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1u) << (31 - i);
  return reversed;
}
inline int __mulhi(int a, int b) { return static_cast<int>(std::int64_t{a} * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(std::uint64_t{a} * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  const std::uint64_t a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;
  const std::uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (middle & 0xffffffffu);
  return a1 * b1 + (middle >> 32) + (other >> 32);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>(((std::uint64_t{high} << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) >> (shift & 31));
}
/// Four bytes of the eight of y:x, each chosen by three bits of a nibble; the nibble's fourth spreads the byte's sign.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const std::uint64_t bytes = std::uint64_t{y} << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned nibble = selector >> 4 * i & 15u;
    unsigned byte = static_cast<unsigned>(bytes >> 8 * (nibble & 7u)) & 255u;
    if ((nibble & 8u) != 0) byte = (byte & 128u) != 0 ? 255u : 0u;
    result |= byte << 8 * i;
  }
  return result;
}

// Products of four bytes each, signed or not, added up.
namespace cuda_emulation {
template <class Byte, class Word>
Word dot4(Word a, Word b, Word sum) {
  for (int i = 0; i < 4; ++i) {
    const Word x = static_cast<Byte>(static_cast<unsigned>(a) >> 8 * i),
               y = static_cast<Byte>(static_cast<unsigned>(b) >> 8 * i);
    sum = static_cast<Word>(static_cast<unsigned>(sum) + static_cast<unsigned>(x * y));
  }
  return sum;
}
template <class Change>
unsigned each_byte(unsigned a, unsigned b, Change change) {
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    result |=
        (static_cast<unsigned>(change(static_cast<std::int8_t>(a >> 8 * i), static_cast<std::int8_t>(b >> 8 * i))) &
         255u)
        << 8 * i;
  }
  return result;
}
}  // namespace cuda_emulation
inline int __dp4a(int a, int b, int sum) { return cuda_emulation::dot4<std::int8_t>(a, b, sum); }
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) { return cuda_emulation::dot4<std::uint8_t>(a, b, sum); }
inline unsigned __vadd4(unsigned a, unsigned b) {
  return cuda_emulation::each_byte(a, b, [](int x, int y) { return x + y; });
}
inline unsigned __vsub4(unsigned a, unsigned b) {
  return cuda_emulation::each_byte(a, b, [](int x, int y) { return x - y; });
}
inline unsigned __vsubss4(unsigned a, unsigned b) {
  return cuda_emulation::each_byte(a, b, [](int x, int y) { return min(max(x - y, -128), 127); });
}
