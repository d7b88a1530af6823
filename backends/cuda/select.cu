// Choosing among logits, and moving rows by number.
#include "backends/cuda/candidate.cuh"

namespace backplane::cuda {
namespace {

constexpr unsigned kThreads = 256, kMostThreads = 1024;

// The first of this warp's part of a row, or where `last` is one, of those that follow it.
template <class A>
__device__ __forceinline__ Candidate next_of_warp(const A* x, std::int64_t columns, const Candidate& last) {
  Candidate best{0.0f, -1};
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
    const Candidate other{to_float(cu::ld_global(x + i)), static_cast<std::int32_t>(i)};
    if ((last.index < 0 || precedes(last, other)) && precedes(other, best)) best = other;
  }
  return warp_first(best);
}

// One block a row. Each turn takes the first of what the warps offer; who offered it looks for its next.
template <class A>
__global__ void __launch_bounds__(kMostThreads) topk_kernel(const TopkCall call) {
  CU_SHARED(Candidate, room, [32]);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const A* x = row_of<A>(call.x, blockIdx.x);
  Candidate own = next_of_warp(x, call.columns, {0.0f, -1});
  for (std::int64_t k = 0; k < call.k; ++k) {
    __syncthreads();  // all have seen the turn before
    if (lane == 0) room[warp] = own;
    __syncthreads();
    const Candidate first = warp_first(lane < blockDim.x / 32 ? room[lane] : Candidate{0.0f, -1});
    if (threadIdx.x == 0) {
      cu::st_global(row_of<std::int32_t>(call.ids, blockIdx.x) + k, first.index);
      cu::st_global(row_of<A>(call.values, blockIdx.x) + k, from_float<A>(first.value));
    }
    if (own.index == first.index && k + 1 < call.k) own = next_of_warp(x, call.columns, first);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) gather_kernel(const GatherCall call) {
  const std::int64_t source = cu::ld_global(call.index + blockIdx.x);
  if (source < 0 || source >= call.sources) {
    if (threadIdx.x == 0) report(call.fault, kIndexFault);
    return;
  }
  const T* from = row_of<T>(call.x, source);
  T* to = row_of<T>(call.out, blockIdx.x);
  for (std::int64_t i = threadIdx.x; i < call.row_bytes / static_cast<std::int64_t>(sizeof(T)); i += kThreads) {
    cu::st_global(to + i, cu::ld_global(from + i));
  }
}

__global__ void __launch_bounds__(kThreads) advance_kernel(const AdvanceCall call) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= call.rows) return;
  const std::int32_t target = cu::ld_global(call.target + row);
  if (target < 0) return;
  if (target >= call.tokens) return report(call.fault, kIndexFault);
  cu::st_global(call.token + target, cu::ld_global(call.ids + row));
}

bool is_aligned(const Rows& rows, std::uint64_t bytes) {
  const auto number = [](std::int64_t stride) { return static_cast<std::uint64_t>(stride); };
  return (reinterpret_cast<std::uintptr_t>(rows.data) | number(rows.inner_stride) | number(rows.middle_stride) |
          number(rows.outer_stride)) %
             bytes ==
         0;
}

}  // namespace

cudaError_t enqueue(cudaStream_t stream, const TopkCall& call) {
  if (call.rows == 0 || call.k == 0) return cudaSuccess;
  return visit_activation(call.activation, [&]<class A>() {
    const unsigned threads = call.columns <= 4096 ? kThreads : kMostThreads;
    return launch(stream, topk_kernel<A>, dim3(static_cast<unsigned>(call.rows)), threads, 0, call);
  });
}

cudaError_t enqueue(cudaStream_t stream, const GatherCall& call) {
  if (call.rows == 0 || call.row_bytes == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(call.rows));
  const bool words = call.row_bytes % 4 == 0 && is_aligned(call.x, 4) && is_aligned(call.out, 4);
  return words ? launch(stream, gather_kernel<std::uint32_t>, grid, kThreads, 0, call)
               : launch(stream, gather_kernel<std::uint8_t>, grid, kThreads, 0, call);
}

cudaError_t enqueue(cudaStream_t stream, const AdvanceCall& call) {
  if (call.rows == 0) return cudaSuccess;
  return launch(stream, advance_kernel, dim3(blocks_for(call.rows, kThreads)), kThreads, 0, call);
}

}  // namespace backplane::cuda
