// Rotary embedding, and the way of K and V into the cache.
#include "backends/cuda/kv_cache.cuh"

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
    double sine = 0, cosine = 0;
    sincos(angle, &sine, &cosine);
    const float c = static_cast<float>(cosine * scale), s = static_cast<float>(sine * scale);
    const int first = call.interleaved ? 2 * i : i, second = call.interleaved ? 2 * i + 1 : i + pairs;
    for (std::int64_t head = 0; head < call.heads; ++head) {
      A* x = row_of<A>(call.x, token * call.heads + head);
      const float a = to_float(cu::ld_global(x + first)), b = to_float(cu::ld_global(x + second));
      const bool swapped = CU_FAULT("rope.pair");
      cu::st_global(x + (swapped ? second : first), from_float<A>(a * c - b * s));
      cu::st_global(x + (swapped ? first : second), from_float<A>(a * s + b * c));
    }
  }
}

// A warp has one head of one token, first its key, then its value.
template <class A, bp_type kType>
__global__ void __launch_bounds__(kThreads) kv_write_kernel(const KvWriteCall call) {
  const CacheView& cache = call.cache;
  const std::int64_t number = std::int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  const std::int64_t token = number / cache.heads, head = number % cache.heads;
  if (token >= call.tokens) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t slot = cu::ld_global(call.slots + token);
  if (slot < 0 || slot >= cache.pages * cache.page_size) {
    if (slot != -1 && lane == 0) report(call.fault, kSlotFault);
    return;
  }
  const std::int64_t offset = slot % cache.page_size, shift = CU_FAULT("kv_write.offset") && offset > 0 ? 1 : 0;
  const std::int64_t place = place_of(cache, slot / cache.page_size, head, offset - shift);
  float values[8];
  load_head<A>(row_of<A>(call.k, number), cache.k.dim, values);
  Cached<kType>::store(cache.k, place, values);
  load_head<A>(row_of<A>(call.v, number), cache.v.dim, values);
  Cached<kType>::store(cache.v, place, values);
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
  const dim3 grid(blocks_for(call.tokens * call.cache.heads, kThreads / 32));
  return visit_activation(call.activation, [&]<class A>() {
    return visit_cache(call.cache.type, [&]<bp_type kType>() {
      return launch(stream, kv_write_kernel<A, kType>, grid, kThreads, 0, call);
    });
  });
}

}  // namespace backplane::cuda
