// The first among numbers, in the order of TOPK.
#pragma once

#include "backends/cuda/common.cuh"

namespace backplane::cuda {

// Larger first, of equal ones the lowest index; NaN counts as smaller than all.
__device__ __forceinline__ bool precedes(const Candidate& a, const Candidate& b) {
  if (a.index < 0 || b.index < 0) return b.index < 0 && a.index >= 0;
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  if (a_nan != b_nan) return b_nan;
  if (!a_nan && a.value != b.value) return a.value > b.value;
  return CU_FAULT("candidates.tie") ? a.index > b.index : a.index < b.index;
}

__device__ __forceinline__ Candidate warp_first(Candidate own) {
  for (int step = 16; step > 0; step /= 2) {
    const Candidate other{__shfl_xor_sync(0xffffffffu, own.value, step), __shfl_xor_sync(0xffffffffu, own.index, step)};
    if (precedes(other, own)) own = other;
  }
  return own;
}

}  // namespace backplane::cuda
