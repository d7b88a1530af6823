#include "tests/conformance/numbers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/error.h"

namespace backplane::conformance {
namespace {

struct Format {
  int bits;       // of the mantissa, the leading one included
  int exponents;  // bits of the exponent
  int lowest;     // exponent of the smallest normal number
  double largest;
};

Format format_of(DType type) {
  switch (type) {
    case DType::kF64:
      return {53, 11, -1022, std::numeric_limits<double>::max()};
    case DType::kF32:
      return {24, 8, -126, std::numeric_limits<float>::max()};
    case DType::kF16:
      return {11, 5, -14, 65504};
    case DType::kBF16:
      return {8, 8, -126, std::ldexp(255.0, 120)};
    case DType::kF8E4M3:
      return {4, 4, -6, 448};
    case DType::kF8E5M2:
      return {3, 5, -14, 57344};
    default:
      throw Error(ErrorCode::kInternal, "no float format", std::string(dtype_name(type)));
  }
}

template <class T>
void store(double value, std::byte* to) {
  const auto stored = static_cast<T>(value);
  std::memcpy(to, &stored, sizeof(stored));
}
template <class T>
double load(const std::byte* from) {
  T stored;
  std::memcpy(&stored, from, sizeof(stored));
  return static_cast<double>(stored);
}

// A number that the format holds exactly, as its bits; for the 16-bit types.
std::uint16_t to_bits(const Format& format, double value) {
  const int fraction_bits = format.bits - 1;
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const int infinity = ((1 << format.exponents) - 1) << fraction_bits;
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity | 1 << (fraction_bits - 1));
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | infinity);
  if (value == 0) return sign;
  const int exponent = std::max(std::ilogb(value), format.lowest);
  const auto mantissa = static_cast<int>(std::ldexp(std::fabs(value), fraction_bits - exponent));
  // The leading bit of a normal number adds one to the exponent's field.
  return static_cast<std::uint16_t>(sign | (((exponent - format.lowest) << fraction_bits) + mantissa));
}

double from_bits(const Format& format, std::uint16_t bits) {
  const int fraction_bits = format.bits - 1;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int field = (bits & 0x7fff) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
  if (field == (1 << format.exponents) - 1) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  const int mantissa = field == 0 ? fraction : fraction + (1 << fraction_bits);
  return sign * std::ldexp(mantissa, std::max(field, 1) - 1 + format.lowest - fraction_bits);
}

}  // namespace

std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

Array::Array(Shape sizes, double value)
    : shape(std::move(sizes)), data(static_cast<std::size_t>(element_count(shape)), value) {}

std::int64_t Array::rows() const {
  std::int64_t count = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) count *= shape[i];
  return count;
}

Precision precision_of(DType type) {
  const Format format = format_of(type);
  return {std::ldexp(1.0, -format.bits), std::ldexp(1.0, format.lowest - format.bits + 1),
          std::ldexp(1.0, format.lowest), format.largest};
}

double round_to(DType type, double value) {
  if (type == DType::kF64 || !std::isfinite(value) || value == 0) return value;
  const Format format = format_of(type);
  const int quantum = std::max(std::ilogb(value), format.lowest) - format.bits + 1;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -quantum)), quantum);
  return std::fabs(rounded) > format.largest ? std::copysign(std::numeric_limits<double>::infinity(), value) : rounded;
}

void round_to(DType type, Array& array) {
  for (double& value : array.data) value = round_to(type, value);
}

namespace {

// E4M3 has no infinity; the last number of its highest exponent is NaN.
std::uint8_t to_e4m3(double value) {
  if (!std::isfinite(value)) return 0x7f;
  const Format format = format_of(DType::kF8E4M3);
  const double rounded = round_to(DType::kF8E4M3, std::clamp(value, -format.largest, format.largest));
  return static_cast<std::uint8_t>((to_bits(format, rounded) & 0x7f) | (std::signbit(value) ? 0x80 : 0));
}

double from_e4m3(std::uint8_t bits) {
  if ((bits & 0x7f) == 0x7f) return std::numeric_limits<double>::quiet_NaN();
  const int field = (bits & 0x7f) >> 3, fraction = bits & 7;
  return (bits & 0x80 ? -1 : 1) * std::ldexp(field == 0 ? fraction : fraction + 8, std::max(field, 1) - 10);
}

}  // namespace

double read_number(DType type, const std::byte* from) {
  switch (type) {
    case DType::kF8E4M3:
      return from_e4m3(static_cast<std::uint8_t>(*from));
    case DType::kF64:
      return load<double>(from);
    case DType::kF32:
      return load<float>(from);
    case DType::kF16:
    case DType::kBF16: {
      std::uint16_t bits;
      std::memcpy(&bits, from, sizeof(bits));
      return from_bits(format_of(type), bits);
    }
    case DType::kI32:
      return load<std::int32_t>(from);
    case DType::kI64:
      return load<std::int64_t>(from);
    case DType::kU64:
      return load<std::uint64_t>(from);
    default:
      throw Error(ErrorCode::kInternal, "can't read numbers", std::string(dtype_name(type)));
  }
}

void write_number(DType type, double value, std::byte* to) {
  switch (type) {
    case DType::kF8E4M3:
      *to = static_cast<std::byte>(to_e4m3(value));
      return;
    case DType::kF64:
      return store<double>(value, to);
    case DType::kF32:
      return store<float>(value, to);
    case DType::kF16:
    case DType::kBF16: {
      const std::uint16_t bits = to_bits(format_of(type), round_to(type, value));
      std::memcpy(to, &bits, sizeof(bits));
      return;
    }
    case DType::kI32:
      return store<std::int32_t>(value, to);
    case DType::kI64:
      return store<std::int64_t>(value, to);
    case DType::kU64:
      return store<std::uint64_t>(value, to);
    default:
      throw Error(ErrorCode::kInternal, "can't write numbers", std::string(dtype_name(type)));
  }
}

namespace {

// GGUF's blocks of 32 behind an F16 scale, which is the largest magnitude / 127, in float32. NaN and infinity make the
// whole block NaN; what rounds to a scale of zero is zero.
void write_block(const double* from, std::byte* to) {
  float largest = 0;
  bool finite = true;
  for (int i = 0; i < 32; ++i) {
    finite = finite && std::isfinite(from[i]);
    largest = std::max(largest, std::fabs(static_cast<float>(from[i])));
  }
  const float step = largest / 127;
  write_number(DType::kF16, finite ? step : std::numeric_limits<double>::quiet_NaN(), to);
  const bool zero = !finite || read_number(DType::kF16, to) == 0;
  const float inverse = zero ? 0 : 1 / step;
  for (int i = 0; i < 32; ++i) {
    const float scaled = zero ? 0 : static_cast<float>(from[i]) * inverse;
    to[2 + i] = static_cast<std::byte>(static_cast<std::int8_t>(std::round(scaled)));
  }
}

void read_block(const std::byte* from, double* to) {
  const double step = read_number(DType::kF16, from);
  for (int i = 0; i < 32; ++i) to[i] = step * static_cast<std::int8_t>(from[2 + i]);
}

}  // namespace

std::vector<std::byte> encode(DType type, const Array& array) {
  if (type == DType::kQ8_0) {
    std::vector<std::byte> bytes(array.data.size() / 32 * 34);
    for (std::size_t i = 0; i + 32 <= array.data.size(); i += 32) write_block(&array.data[i], &bytes[i / 32 * 34]);
    return bytes;
  }
  const std::size_t size = dtype_info(type).block_bytes;
  std::vector<std::byte> bytes(array.data.size() * size);
  for (std::size_t i = 0; i < array.data.size(); ++i) write_number(type, array.data[i], bytes.data() + i * size);
  return bytes;
}

Array decode(DType type, Shape shape, const std::vector<std::byte>& bytes) {
  Array array(std::move(shape));
  if (type == DType::kQ8_0) {
    for (std::size_t i = 0; i + 32 <= array.data.size(); i += 32) read_block(&bytes[i / 32 * 34], &array.data[i]);
    return array;
  }
  const std::size_t size = dtype_info(type).block_bytes;
  for (std::size_t i = 0; i < array.data.size(); ++i) array.data[i] = read_number(type, bytes.data() + i * size);
  return array;
}

}  // namespace backplane::conformance
