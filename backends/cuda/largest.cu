// The end of HEAD_ARGMAX: the largest among those of all blocks, or NaN as its value where any logit is.
#include <cmath>

#include "backends/cuda/candidate.cuh"

namespace backplane::cuda {
namespace {

constexpr unsigned kThreads = 256;

// A block for each token.
template <class A>
__global__ void __launch_bounds__(kThreads) largest_kernel(const LargestCall call) {
  CU_SHARED(Candidate, room, [kThreads / 32]);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
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
  best = warp_first(best);
  if (lane == 0) cu::st_shared(room + warp, best);
  is_broken = __syncthreads_or(is_broken ? 1 : 0) != 0;
  best = warp_first(lane < kThreads / 32 ? cu::ld_shared(room + lane) : Candidate{0.0f, -1});
  if (threadIdx.x != 0) return;
  cu::st_global(call.ids + token, best.index);
  cu::st_global(reinterpret_cast<A*>(call.values) + token, from_float<A>(is_broken ? NAN : best.value));
}

}  // namespace

cudaError_t enqueue(cudaStream_t stream, const LargestCall& call) {
  if (call.tokens == 0) return cudaSuccess;
  return visit_activation(call.activation, [&]<class A>() {
    return launch(stream, largest_kernel<A>, dim3(static_cast<unsigned>(call.tokens)), kThreads, 0, call);
  });
}

}  // namespace backplane::cuda
