#include "numbers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace opaque {
namespace {

template <class T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

double from_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  if (exponent == 31) value = mantissa == 0 ? HUGE_VAL : std::nan("");
  return bits >> 15 ? -value : value;
}

// value = m * 2^quantum with a whole m of at most 11 bits.
std::uint16_t to_half(double value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  int exponent = 0;
  std::frexp(size, &exponent);
  const int quantum = std::max(exponent - 11, -24);
  const int m = static_cast<int>(std::nearbyint(std::ldexp(size, -quantum)));
  return static_cast<std::uint16_t>(sign | (m < 1024 ? m : ((quantum + 25) << 10) + (m - 1024)));
}

std::uint16_t to_bfloat(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// GGUF's blocks of 32: the scale, for Q4_1 the minimum, then the values.
void decode_block(bp_type type, const std::byte* block, double* out) {
  const double scale = from_half(get<std::uint16_t>(block));
  for (int i = 0; i < 32; ++i) {
    if (type == BP_TYPE_Q8_0) {
      out[i] = static_cast<float>(scale * static_cast<signed char>(block[2 + i]));
      continue;
    }
    const int header = type == BP_TYPE_Q4_1 ? 4 : 2;
    const int byte = std::to_integer<int>(block[header + i % 16]), nibble = i < 16 ? byte & 15 : byte >> 4;
    const double minimum = type == BP_TYPE_Q4_1 ? from_half(get<std::uint16_t>(block + 2)) : -8 * scale;
    out[i] = static_cast<float>(scale * nibble + minimum);
  }
}

}  // namespace

double decode(bp_type type, const std::byte* at) {
  switch (type) {
    case BP_TYPE_F64:
      return get<double>(at);
    case BP_TYPE_F32:
      return get<float>(at);
    case BP_TYPE_F16:
      return from_half(get<std::uint16_t>(at));
    case BP_TYPE_BF16:
      return std::bit_cast<float>(std::uint32_t{get<std::uint16_t>(at)} << 16);
    case BP_TYPE_I32:
      return get<std::int32_t>(at);
    default:
      backplane::plugin::refuse("a type that this plugin can't read");
  }
}

void encode(bp_type type, double value, std::byte* at) {
  switch (type) {
    case BP_TYPE_F64:
      return put(at, value);
    case BP_TYPE_F32:
      return put(at, static_cast<float>(value));
    case BP_TYPE_F16:
      return put(at, to_half(value));
    case BP_TYPE_BF16:
      return put(at, to_bfloat(value));
    case BP_TYPE_I32:
      return put(at, static_cast<std::int32_t>(value));
    default:
      backplane::plugin::refuse("a type that this plugin can't write");
  }
}

bool decodable(bp_type type) {
  return backplane::plugin::is_float(type) || type == BP_TYPE_Q8_0 || type == BP_TYPE_Q4_0 || type == BP_TYPE_Q4_1;
}

void decode_row(bp_type type, const std::byte* row, std::int64_t count, double* out) {
  const auto info = backplane::plugin::type_info(type);
  for (std::int64_t i = 0; i < count; i += info.block_elements, row += info.block_bytes) {
    if (info.block_elements == 1) {
      out[i] = decode(type, row);
    } else {
      decode_block(type, row, out + i);
    }
  }
}

}  // namespace opaque
