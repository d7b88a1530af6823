// Floating-point types of 16 and 8 bits, as bits. SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace backplane::plugin {

inline float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  // Exponent and mantissa, moved to where a float has them, mean a number 2^112 times too small; that is exact for
  // subnormal numbers too. Infinity and NaN get the exponent of their kind, the mantissa is right already.
  const auto number = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);
  const std::uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
  return std::bit_cast<float>(sign | number | special);
}

inline float bfloat_to_float(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

// The nearest number of a format with an exponent of E bits and a mantissa of M bits, ties to even, infinity beyond the
// largest. From double, so that there is only one rounding whatever the source (float to double is exact).
template <int E, int M>
std::uint32_t encode_float(double value) {
  constexpr int kBias = (1 << (E - 1)) - 1;
  constexpr std::uint64_t kInfinity = ((1u << E) - 1u) << M;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto sign = static_cast<std::uint32_t>(bits >> 63) << (E + M);
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
  if (exponent == 1024) return sign | static_cast<std::uint32_t>(kInfinity) | (fraction != 0 ? 1u << (M - 1) : 0u);

  // Numbers below the smallest normal one share its exponent, so they lose more bits of the mantissa.
  const int target = std::max(exponent, 1 - kBias);
  const int shift = 52 - M + target - exponent;
  if (shift > 53) return sign;  // less than half of the smallest number; zero is here as well
  const std::uint64_t mantissa = fraction | std::uint64_t{1} << 52;
  const std::uint64_t odd = mantissa >> shift & 1;
  const std::uint64_t rounded = (mantissa + (std::uint64_t{1} << (shift - 1)) - 1 + odd) >> shift;
  // Added, not or-ed: the leading bit of a normal number, or a carry of the rounding, raises the exponent by one.
  const std::uint64_t result = (static_cast<std::uint64_t>(target + kBias - 1) << M) + rounded;
  return sign | static_cast<std::uint32_t>(std::min(result, kInfinity));
}

inline std::uint16_t float_to_half(double value) { return static_cast<std::uint16_t>(encode_float<5, 10>(value)); }
inline std::uint16_t float_to_bfloat(double value) { return static_cast<std::uint16_t>(encode_float<8, 7>(value)); }
inline std::uint8_t float_to_e5m2(double value) { return static_cast<std::uint8_t>(encode_float<5, 2>(value)); }

// E4M3 has no infinity: that exponent holds the numbers up to 448, and one NaN. What is too large becomes the NaN.
inline std::uint8_t float_to_e4m3(double value) {
  const std::uint8_t sign = std::bit_cast<std::uint64_t>(value) >> 63 ? 0x80 : 0;
  const double magnitude = sign ? -value : value;
  if (!(magnitude <= 464.0)) return sign | 0x7f;  // 464 is the tie between 448 and the next, and 448 is even
  // One exponent more than encode_float<4, 3> knows as finite: take the upper part through a power of two.
  if (magnitude >= 128.0) return sign | static_cast<std::uint8_t>(encode_float<4, 3>(magnitude / 4) + (2u << 3));
  return sign | static_cast<std::uint8_t>(encode_float<4, 3>(magnitude));
}

// As a KV cache stores it: finite numbers beyond 448 become 448, because a NaN would be the end of a sequence. What
// isn't finite becomes NaN.
inline std::uint8_t float_to_cached_e4m3(double value) {
  if (!std::isfinite(value)) return 0x7f;
  return float_to_e4m3(std::clamp(value, -448.0, 448.0));
}

// A half with the same bits lacks 8 of the exponent; exact.
inline float e4m3_to_float(std::uint8_t bits) {
  if ((bits & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const auto half = static_cast<std::uint16_t>((bits & 0x80) << 8 | (bits & 0x7f) << 7);
  return half_to_float(half) * 256.0f;
}

}  // namespace backplane::plugin
