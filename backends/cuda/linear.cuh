// Products with weights as the file has them. Sums are F32, in one order for each kernel, whatever the number of
// tokens.
#pragma once

#include "backends/cuda/formats.cuh"

namespace backplane::cuda {

// For many tokens (linear_many.cu); of the call's numbers none is 0.
cudaError_t enqueue_many(cudaStream_t stream, const LinearCall& call);

template <class A>
__device__ __forceinline__ void store(const LinearCall& call, std::int64_t token, std::int64_t row, float sum) {
  if (call.bias != nullptr) sum += cu::ld_global(call.bias + row);
  if (call.residual.data != nullptr) {
    sum = to_float(cu::ld_global(row_of<A>(call.residual, token) + row)) + call.alpha * sum;
  }
  cu::st_global(row_of<A>(call.out, token) + row, from_float<A>(sum));
}

}  // namespace backplane::cuda
