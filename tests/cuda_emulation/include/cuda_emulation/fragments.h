// What mma.sync and ldmatrix do, for kernels that use them through backends/cuda/mma.cuh. Unlike those of wmma, their
// fragments are documented, and which lane holds what is as the PTX ISA has it. Products are exact and sums
// single-precision, in ascending order; the hardware's order is another.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <source_location>

#include "cuda_emulation/access.h"
#include "cuda_emulation/device.h"

namespace cuda_emulation {

/// One lane's part of d[i] += a b[i] for `count` products of 16 x depth and depth x 8: four words of a, two of each b,
/// four sums of each d. Words hold two bfloat16 (depth 16), or a float of which the lower 13 bits are ignored, as
/// tf32 does (depth 8).
struct FragmentProduct {
  int depth, count;
  const std::uint32_t* a;
  const std::uint32_t* b;
  float* d;
};
/// By the whole warp, with equal depth and count; else the sums are poison.
void multiply_fragments(FragmentProduct product);

/// The address that each lane of the warp gave. Orders no memory.
struct RowAddresses {
  const void* of[32];
};
RowAddresses exchange_addresses(const void* own);

/// ldmatrix.x4 of 8 x 8 matrices of 16 bits: lane 8 i + r says where row r of matrix i begins, of which each lane gets
/// a word: elements 2 (lane % 4) and the next of row lane / 4, or transposed.
inline void load_matrices(std::uint32_t (&words)[4], const void* row, bool transposed,
                          std::source_location where = std::source_location::current()) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) trap("a row of a matrix isn't aligned to 16 bytes");
  if (counting) note_load(row, 16, where);
  const RowAddresses rows = exchange_addresses(row);
  const unsigned first = lane() / 4, second = lane() % 4 * 2;
  for (unsigned i = 0; i < 4; ++i) {
    std::uint16_t parts[2];
    for (unsigned part = 0; part < 2; ++part) {
      const unsigned r = transposed ? second + part : first, column = transposed ? first : second + part;
      std::memcpy(&parts[part], static_cast<const char*>(rows.of[i * 8 + r]) + column * 2, 2);
    }
    words[i] = parts[0] | std::uint32_t{parts[1]} << 16;
  }
}

}  // namespace cuda_emulation
