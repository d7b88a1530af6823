// Element types as doubles, both ways, and GGUF's quantized blocks.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "plugins/sdk/backplane_plugin.hpp"

namespace opaque {

// An F16's exponent and mantissa where a float has its own mean a number 2^112 times too small.
inline float from_half(std::uint16_t bits) {
  const std::uint32_t size = bits & 0x7fffU, sign = (bits & 0x8000U) << 16;
  const auto number = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size << 13) * 0x1p112F);
  return std::bit_cast<float>(sign | number | (size >= 0x7c00U ? 0x7f800000U : 0U));
}

// One element. BP_UNSUPPORTED for types other than floats and I32, which are all that ops read numbers from.
double decode(bp_type type, const std::byte* at);
// Any plain type; floats round to nearest even, integers that don't hold the value are BP_INVALID.
void encode(bp_type type, double value, std::byte* at);

// Floats or quantized blocks; the latter are whole.
bool decodable(bp_type type);
void decode_row(bp_type type, const std::byte* row, std::uint64_t count, double* out);

}  // namespace opaque
