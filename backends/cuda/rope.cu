// Rotary embedding, and the way of K and V into the cache.
#include "backends/cuda/common.cuh"

namespace backplane::cuda {
namespace {

constexpr unsigned kThreads = 128;

// A block has one token; a thread's pair has the same angle in every head. Angles are double, as positions times
// frequencies lose all meaning in float.
template <class A>
__global__ void __launch_bounds__(kThreads) rope_kernel(const RopeCall call) {
  const std::int64_t token = blockIdx.x;
  const std::int32_t table = cu::ld_global(call.row + token);
  if (table < 0 || table >= call.tables) {
    if (threadIdx.x == 0) report(call.fault, kIndexFault);
    return;
  }
  const double position = cu::ld_global(call.pos + token), scale = cu::ld_global(call.scale + table);
  const auto* frequencies =
      reinterpret_cast<const double*>(reinterpret_cast<const std::byte*>(call.inv_freq) + table * call.inv_freq_stride);
  const int pairs = call.n_dims / 2;
  for (int i = static_cast<int>(threadIdx.x); i < pairs; i += kThreads) {
    const double angle = position * cu::ld_global(frequencies + i);
    const float c = static_cast<float>(cos(angle) * scale), s = static_cast<float>(sin(angle) * scale);
    const int first = call.interleaved ? 2 * i : i, second = call.interleaved ? 2 * i + 1 : i + pairs;
    for (std::int64_t head = 0; head < call.heads; ++head) {
      A* x = row_of<A>(call.x, token * call.heads + head);
      const float a = to_float(cu::ld_global(x + first)), b = to_float(cu::ld_global(x + second));
      cu::st_global(x + first, from_float<A>(a * c - b * s));
      cu::st_global(x + second, from_float<A>(a * s + b * c));
    }
  }
}

template <class A, class T>
__device__ __forceinline__ void write_head(const Rows& from, std::int64_t number, std::byte* to, std::int64_t dim) {
  const A* x = row_of<A>(from, number);
  for (std::int64_t i = threadIdx.x; i < dim; i += kThreads) {
    cu::st_global(reinterpret_cast<T*>(to) + i, from_float<T>(to_float(cu::ld_global(x + i))));
  }
}

// A block has one head of one token.
template <class A, class T>
__global__ void __launch_bounds__(kThreads) kv_write_kernel(const KvWriteCall call) {
  const std::int64_t token = blockIdx.x, head = blockIdx.y;
  const std::int64_t slot = cu::ld_global(call.slots + token);
  const CacheView& cache = call.cache;
  if (slot < 0) {
    if (slot < -1 && threadIdx.x == 0) report(call.fault, kSlotFault);
    return;
  }
  if (slot >= cache.pages * cache.page_size) {
    if (threadIdx.x == 0) report(call.fault, kSlotFault);
    return;
  }
  const std::int64_t page = slot / cache.page_size, offset = slot % cache.page_size;
  const std::int64_t place = (page * cache.heads + head) * cache.page_size + offset;
  const std::int64_t size = sizeof(T), number = token * cache.heads + head;
  write_head<A, T>(call.k, number, cache.k + place * cache.dim * size, cache.dim);
  write_head<A, T>(call.v, number, cache.v + place * cache.value_dim * size, cache.value_dim);
}

}  // namespace

cudaError_t enqueue(cudaStream_t stream, const RopeCall& call) {
  if (call.tokens == 0 || call.heads == 0 || call.n_dims == 0) return cudaSuccess;
  return visit_activation(call.activation, [&]<class A>() {
    return launch(stream, rope_kernel<A>, dim3(static_cast<unsigned>(call.tokens)), kThreads, 0, call);
  });
}

cudaError_t enqueue(cudaStream_t stream, const KvWriteCall& call) {
  if (call.tokens == 0 || call.cache.heads == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(call.tokens), static_cast<unsigned>(call.cache.heads));
  return visit_activation(call.activation, [&]<class A>() {
    switch (call.cache.type) {
      case BP_TYPE_F32:
        return launch(stream, kv_write_kernel<A, float>, grid, kThreads, 0, call);
      case BP_TYPE_F16:
        return launch(stream, kv_write_kernel<A, __half>, grid, kThreads, 0, call);
      default:
        return launch(stream, kv_write_kernel<A, __nv_bfloat16>, grid, kThreads, 0, call);
    }
  });
}

}  // namespace backplane::cuda
