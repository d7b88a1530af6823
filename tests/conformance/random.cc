#include "tests/conformance/random.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "core/base/error.h"

namespace backplane::conformance {

// FNV-1a over the name, mixed into the seed.
Random::Random(std::uint64_t seed, std::string_view name) {
  state_ = 0xcbf29ce484222325 ^ seed * 0x9e3779b97f4a7c15;
  for (const char c : name) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3;
}

// SplitMix64.
std::uint64_t Random::bits() {
  state_ += 0x9e3779b97f4a7c15;
  std::uint64_t z = state_;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

double Random::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

double Random::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

std::int64_t Random::below(std::int64_t end) {
  return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(std::max<std::int64_t>(end, 1)));
}

// Large ones leave room for a square and a sum in the same type.
double Random::edge(DType type) {
  const Precision p = precision_of(type);
  const double sign = below(2) == 0 ? 1 : -1;
  switch (below(6)) {
    case 0:
      return sign * 0.0;
    case 1:
      return sign * p.smallest;
    case 2:
      return sign * p.smallest * static_cast<double>(1 + below(100));
    case 3:
      return sign * p.normal;
    case 4:
      return sign * std::sqrt(p.largest) / 64;
    default:
      return normal();
  }
}

Array Random::array(Shape shape, DType type, Style style, double scale) {
  Array out(std::move(shape));
  const std::int64_t columns = out.shape.empty() ? 1 : out.columns();
  for (std::size_t i = 0; i < out.data.size(); ++i) {
    double value = normal() * scale;
    if (style == Style::kOutliers && static_cast<std::int64_t>(i) % columns % 17 == 5) value *= 100;
    if (style == Style::kEdges) value = edge(type);
    if (style == Style::kSpecial && below(9) == 0) {
      constexpr double kInfinity = std::numeric_limits<double>::infinity();
      const double specials[] = {kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()};
      value = specials[below(3)];
    }
    out.data[i] = round_to(type, value);
  }
  return out;
}

namespace {

// Where a block keeps its F16 scales.
std::vector<std::size_t> scale_offsets(DType type) {
  switch (type) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108};
    case DType::kQ6_K:
      return {208};
    default:
      return {0};
  }
}

}  // namespace

std::vector<std::byte> random_weight(Random& random, DType type, std::int64_t rows, std::int64_t columns) {
  if (!is_quantized(type)) return encode(type, random.array({rows, columns}, type, Style::kNormal, 0.5));
  const std::size_t block = dtype_info(type).block_bytes;
  std::vector<std::byte> bytes(static_cast<std::size_t>(rows) * *row_bytes(type, static_cast<std::uint64_t>(columns)));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.bits() >> 32);
  for (std::size_t at = 0; at < bytes.size(); at += block) {
    if (type == DType::kMXFP4) {  // its scale is an exponent, 127 for 1
      bytes[at] = static_cast<std::byte>(122 + random.below(8));
      continue;
    }
    for (const std::size_t offset : scale_offsets(type)) {
      write_number(DType::kF16, (0.2 + random.uniform()) * (random.below(2) == 0 ? 0.02 : -0.02), &bytes[at + offset]);
    }
  }
  return bytes;
}

namespace {

// Blocks of 32 by their largest magnitude, as GGUF's Q8_0 does it; the step is kept in `scale`.
void quantize_block(DType scale, const double* x, std::int64_t n, double* out, double* ties) {
  float largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(static_cast<float>(x[i])));
  const float step = largest / 127;
  const float inverse = step != 0 ? 1 / step : 0;
  const double stored = round_to(scale, step);
  for (std::int64_t i = 0; i < n; ++i) {
    const float scaled = static_cast<float>(x[i]) * inverse;
    out[i] = std::round(scaled) * stored;
    const double beyond = std::fabs(scaled - std::floor(scaled) - 0.5);
    ties[i] = beyond < 1e-4 ? stored : 0;
  }
}

}  // namespace

Array quantize_activations(const Array& x, DType type, Array& ties) {
  Array out = x;
  ties = Array(x.shape);
  if (type == DType::kNone) return out;
  if (type == DType::kI16) {  // as I8, and then what that left over
    Array more(x.shape), rest = x, first_ties;
    out = quantize_activations(x, DType::kI8, first_ties);
    for (std::size_t i = 0; i < x.data.size(); ++i) {
      rest.data[i] = static_cast<float>(x.data[i]) - static_cast<float>(out.data[i]);
    }
    more = quantize_activations(rest, DType::kI8, ties);
    for (std::size_t i = 0; i < x.data.size(); ++i) {
      out.data[i] += more.data[i];
      if (first_ties.data[i] != 0) ties.data[i] = first_ties.data[i] / 254;  // the second step makes good for the first
    }
    return out;
  }
  if (type == DType::kQ8_0 || type == DType::kI8) {
    const DType scale = type == DType::kQ8_0 ? DType::kF16 : DType::kF32;
    for (std::int64_t r = 0; r < x.rows(); ++r) {
      for (std::int64_t i = 0; i < x.columns(); i += 32) {
        quantize_block(scale, x.row(r) + i, std::min<std::int64_t>(32, x.columns() - i), out.row(r) + i,
                       ties.row(r) + i);
      }
    }
    return out;
  }
  if (!is_float(type) && type != DType::kF8E4M3 && type != DType::kF8E5M2) {
    throw Error(ErrorCode::kCheckFailed, "activations rounded to this type can't be checked yet",
                std::string(dtype_name(type)));
  }
  round_to(type, out);
  return out;
}

}  // namespace backplane::conformance
