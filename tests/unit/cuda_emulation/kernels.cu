#include "tests/unit/cuda_emulation/kernels.h"

__global__ void add_vectors(const float* a, const float* b, float* sum, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) cu::st_global(sum + i, cu::ld_global(a + i) + cu::ld_global(b + i));
}
