// The activation functions of ACT and GLU.
#pragma once

#include "backends/cuda/common.cuh"

namespace backplane::cuda {

__device__ inline float activate(std::uint32_t kind, float x) {
  switch (kind) {
    case BP_ACT_GELU_ERF:
      return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    case BP_ACT_GELU_TANH:
      return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    case BP_ACT_SILU:
      return x / (1.0f + expf(-x));
    default:
      return x < 0.0f ? 0.0f : x;  // keeps NaN
  }
}

}  // namespace backplane::cuda
