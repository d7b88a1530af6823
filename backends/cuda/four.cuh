// Four neighboring columns of a row of activations or parameters at a time, as one access where the row is aligned for
// it. Columns from `columns` on are 0, and aren't stored.
#pragma once

#include "backends/cuda/common.cuh"

namespace backplane::cuda {

template <class A>
__device__ __forceinline__ bool holds_four(const A* row, std::int64_t column, std::int64_t columns) {
  return column + 4 <= columns && reinterpret_cast<std::uintptr_t>(row) % (4 * sizeof(A)) == 0;
}

// `column` is a multiple of four.
template <class A>
__device__ __forceinline__ float4 load_four(const A* row, std::int64_t column, std::int64_t columns) {
  if (holds_four(row, column, columns)) {
    if constexpr (sizeof(A) == 4) {
      return cu::ld_global(reinterpret_cast<const float4*>(row + column));
    } else {
      const uint2 bits = cu::ld_global(reinterpret_cast<const uint2*>(row + column));
      A four[4];
      memcpy(static_cast<void*>(four), &bits, sizeof(bits));
      return {to_float(four[0]), to_float(four[1]), to_float(four[2]), to_float(four[3])};
    }
  }
  float4 x{0.0f, 0.0f, 0.0f, 0.0f};
  if (column < columns) x.x = to_float(cu::ld_global(row + column));
  if (column + 1 < columns) x.y = to_float(cu::ld_global(row + column + 1));
  if (column + 2 < columns) x.z = to_float(cu::ld_global(row + column + 2));
  if (column + 3 < columns) x.w = to_float(cu::ld_global(row + column + 3));
  return x;
}

template <class A>
__device__ __forceinline__ void store_four(A* row, std::int64_t column, std::int64_t columns, const float4& x) {
  const A four[4] = {from_float<A>(x.x), from_float<A>(x.y), from_float<A>(x.z), from_float<A>(x.w)};
  if (holds_four(row, column, columns)) {
    std::conditional_t<sizeof(A) == 4, uint4, uint2> bits;
    memcpy(&bits, static_cast<const void*>(four), sizeof(bits));
    cu::st_global(reinterpret_cast<decltype(bits)*>(row + column), bits);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (column + i < columns) cu::st_global(row + column + i, four[i]);
  }
}

// Applies `f` to the four.
template <class F, class... T>
__device__ __forceinline__ float4 each(F&& f, const T&... x) {
  return {f(x.x...), f(x.y...), f(x.z...), f(x.w...)};
}
__device__ __forceinline__ float sum_of(const float4& x) { return (x.x + x.y) + (x.z + x.w); }

}  // namespace backplane::cuda
