// What products share. Weights are as layout.h has them. Sums are F32, in one order for each kernel, whatever the
// number of tokens.
#pragma once

#include "backends/cuda/activate.cuh"
#include "backends/cuda/formats.cuh"

namespace backplane::cuda {

// For some tokens and for many (linear_narrow.cu, linear_many.cu); of the call's numbers none is 0.
cudaError_t enqueue_narrow(cudaStream_t stream, const LinearCall& call);
cudaError_t enqueue_wide(cudaStream_t stream, const LinearCall& call);

// A row of a tensor of two dimensions, without the divisions of row_of.
template <class A>
__device__ __forceinline__ A* token_of(const Rows& rows, std::int64_t token) {
  return reinterpret_cast<A*>(rows.data + token * rows.inner_stride);
}

template <class A>
__device__ __forceinline__ void store(const LinearCall& call, std::int64_t token, std::int64_t row, float sum) {
  if (call.bias != nullptr) sum += cu::ld_global(call.bias + row);
  if (call.kind != 0) sum = activate(call.kind, sum);
  if (call.residual.data != nullptr) {
    sum = to_float(cu::ld_global(token_of<A>(call.residual, token) + row)) + call.alpha * sum;
  }
  cu::st_global(token_of<A>(call.out, token) + row, from_float<A>(sum));
}

}  // namespace backplane::cuda
