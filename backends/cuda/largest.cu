// The end of HEAD_ARGMAX: the largest among those of all blocks, or NaN as its value where any logit is.
#include <cmath>

#include "backends/cuda/candidate.cuh"
#include "backends/cuda/four.cuh"

namespace backplane::cuda {
namespace {

constexpr unsigned kThreads = 256;

// The first of a block's, to all threads. `room` is one for each warp.
__device__ __forceinline__ Candidate block_first(Candidate own, Candidate* room) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  own = warp_first(own);
  if (lane == 0) cu::st_shared(room + warp, own);
  __syncthreads();
  return warp_first(lane < kThreads / 32 ? cu::ld_shared(room + lane) : Candidate{0.0f, -1});
}

// A block has kLogitsOfBlock logits of one token.
template <class A>
__global__ void __launch_bounds__(kThreads) logits_kernel(const LogitsCall call) {
  CU_SHARED(Candidate, room, [kThreads / 32]);
  const std::int64_t token = blockIdx.x, begin = std::int64_t{blockIdx.y} * kLogitsOfBlock;
  const std::int64_t left = call.columns - begin, count = left < kLogitsOfBlock ? left : kLogitsOfBlock;
  const A* x = row_of<A>(call.logits, token) + begin;
  Candidate best{0.0f, -1};
  bool is_broken = false;
#pragma unroll
  for (std::int64_t i = std::int64_t{threadIdx.x} * 4; i < kLogitsOfBlock; i += kThreads * 4) {
    const float4 four = load_four(x, i, count);
    const float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (i + j >= count) continue;
      is_broken = is_broken || values[j] != values[j];
      const Candidate other{values[j], static_cast<std::int32_t>(begin + i + j)};
      if (precedes(other, best)) best = other;
    }
  }
  is_broken = __syncthreads_or(is_broken ? 1 : 0) != 0;
  best = block_first(best, room);
  if (is_broken) best.index = -2 - best.index;
  if (threadIdx.x == 0) cu::st_global(call.largest + token * gridDim.y + blockIdx.y, best);
}

// A block for each token.
template <class A>
__global__ void __launch_bounds__(kThreads) largest_kernel(const LargestCall call) {
  CU_SHARED(Candidate, room, [kThreads / 32]);
  const std::int64_t token = blockIdx.x;
  const Candidate* own = call.candidates + token * call.blocks;
  Candidate best{0.0f, -1};
  bool is_broken = false;
  for (std::int64_t i = threadIdx.x; i < call.blocks; i += kThreads) {
    Candidate other = cu::ld_global(own + i);
    if (other.index < -1) {
      is_broken = true;
      other.index = -2 - other.index;
    }
    if (precedes(other, best)) best = other;
  }
  is_broken = __syncthreads_or(is_broken ? 1 : 0) != 0;
  best = block_first(best, room);
  if (threadIdx.x != 0) return;
  cu::st_global(call.ids + token, best.index);
  cu::st_global(reinterpret_cast<A*>(call.values) + token, from_float<A>(is_broken ? NAN : best.value));
}

}  // namespace

cudaError_t enqueue(cudaStream_t stream, const LogitsCall& call) {
  if (call.tokens == 0 || call.columns == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(call.tokens), blocks_for(call.columns, kLogitsOfBlock));
  return visit_activation(call.activation,
                          [&]<class A>() { return launch(stream, logits_kernel<A>, grid, kThreads, 0, call); });
}

cudaError_t enqueue(cudaStream_t stream, const LargestCall& call) {
  if (call.tokens == 0) return cudaSuccess;
  return visit_activation(call.activation, [&]<class A>() {
    return launch(stream, largest_kernel<A>, dim3(static_cast<unsigned>(call.tokens)), kThreads, 0, call);
  });
}

}  // namespace backplane::cuda
