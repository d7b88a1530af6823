// Rows of any float or quantized type, as floats.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::cpu {

// `count` consecutive elements, a multiple of the type's block, in float32: for quantized types this is what GGUF
// defines, bit for bit; F64 is rounded. The type must be a float type other than F8_E5M2, or a
// quantized one. `data` needs
// no alignment.
void dequantize(bp_type type, const std::byte* data, std::int64_t count, float* out);

// The same without the detour through float32 where the type has more precision: F64 stays exact.
template <class Real>
void read_elements(bp_type type, const std::byte* data, std::int64_t count, Real* out);

// One element of a float type.
double read_element(bp_type type, const std::byte* data);

// `count` elements of a float type, rounded to nearest even, F8_E4M3 as a KV cache has it (no number beyond 448), or of
// Q8_0, rounded as GGUF's reference does it in
// float32: by the block's largest magnitude, halves away from zero. A block with NaN or infinity becomes NaN, one too
// small for its F16 scale zeros.
template <class Real>
void write_elements(bp_type type, const Real* values, std::int64_t count, std::byte* out);

}  // namespace backplane::cpu
