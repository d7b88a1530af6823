#include "numbers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace opaque {
namespace {

namespace sdk = backplane::plugin;

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

struct Small {
  int fraction, exponents;  // bits
  unsigned beyond;          // what a value that is too large becomes
  unsigned nan;
};
constexpr Small kHalf{10, 5, 0x7c00, 0x7e00}, kBfloat{7, 8, 0x7f80, 0x7fc0};
constexpr Small kE5M2{2, 5, 0x7c, 0x7e}, kE4M3{3, 4, 0x7f, 0x7f};

// The value is m * 2^(exponent - fraction) with a whole m; a normal number's leading bit adds one to the exponent.
unsigned to_small(const Small& format, double value) {
  const unsigned sign = std::signbit(value) ? 1U << (format.fraction + format.exponents) : 0;
  const double size = std::fabs(value);
  if (std::isnan(value)) return sign | format.nan;
  if (std::isinf(value)) return sign | format.beyond;
  const int lowest = 2 - (1 << (format.exponents - 1));
  const int exponent = size == 0 ? lowest : std::max(std::ilogb(size), lowest);
  if (exponent > 1 << format.exponents) return sign | format.beyond;
  const auto m = static_cast<unsigned>(std::nearbyint(std::ldexp(size, format.fraction - exponent)));
  const unsigned code = (static_cast<unsigned>(exponent - lowest) << format.fraction) + m;
  return sign | std::min(code, format.beyond);
}

template <class Integer>
void put_integer(std::byte* at, double value) {
  const double end = std::ldexp(1.0, std::numeric_limits<Integer>::digits);
  const double least = std::numeric_limits<Integer>::is_signed ? -end : 0;
  sdk::require(value >= least && value < end, "a value that the type can't hold");
  put(at, static_cast<Integer>(value));
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
      sdk::refuse("a type that this plugin can't read");
  }
}

void encode(bp_type type, double value, std::byte* at) {
  switch (type) {
    case BP_TYPE_F64:
      return put(at, value);
    case BP_TYPE_F32:
      return put(at, static_cast<float>(value));
    case BP_TYPE_F16:
      return put(at, static_cast<std::uint16_t>(to_small(kHalf, value)));
    case BP_TYPE_BF16:
      return put(at, static_cast<std::uint16_t>(to_small(kBfloat, value)));
    case BP_TYPE_F8_E4M3:
      return put(at, static_cast<std::uint8_t>(to_small(kE4M3, value)));
    case BP_TYPE_F8_E5M2:
      return put(at, static_cast<std::uint8_t>(to_small(kE5M2, value)));
    case BP_TYPE_I64:
      return put_integer<std::int64_t>(at, value);
    case BP_TYPE_I32:
      return put_integer<std::int32_t>(at, value);
    case BP_TYPE_I16:
      return put_integer<std::int16_t>(at, value);
    case BP_TYPE_I8:
      return put_integer<std::int8_t>(at, value);
    case BP_TYPE_U64:
      return put_integer<std::uint64_t>(at, value);
    case BP_TYPE_U32:
      return put_integer<std::uint32_t>(at, value);
    case BP_TYPE_U16:
      return put_integer<std::uint16_t>(at, value);
    case BP_TYPE_U8:
      return put_integer<std::uint8_t>(at, value);
    case BP_TYPE_BOOL:
      return put(at, static_cast<std::uint8_t>(value != 0));
    default:
      sdk::refuse("a type that this plugin can't write");
  }
}

}  // namespace opaque
