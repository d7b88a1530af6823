// What follows the products of QKV_ROPE_WRITE: heads are normalized and rotated, keys and values go to the cache.
#include "backends/cuda/kv_cache.cuh"

namespace backplane::cuda {
namespace {

constexpr int kWarps = 8;
constexpr unsigned kThreads = kWarps * 32;
constexpr int kEach = 8;  // elements of a lane
constexpr int kMostPairs = kMostHeadDim / 2;
constexpr int kLine = 18;  // of angles, one for each eighth pair: neither those who fill nor those who read meet
constexpr unsigned kAll = 0xffffffffu;

__device__ __forceinline__ int angle_place(int pair) { return pair % kEach * kLine + pair / kEach; }

// Cosine and sine of each pair's angle, as in rope.cu. False, and a fault, for a row of the tables that isn't there.
__device__ __forceinline__ bool find_angles(const RopeCall& rope, std::int64_t token, int* fault, float2* angles) {
  const std::int32_t table = cu::ld_global(rope.row + token);
  if (table < 0 || table >= rope.tables) {
    if (threadIdx.x == 0) report(fault, kIndexFault);
    return false;
  }
  const double position = cu::ld_global(rope.pos + token), scale = cu::ld_global(rope.scale + table);
  const auto* frequencies =
      reinterpret_cast<const double*>(reinterpret_cast<const std::byte*>(rope.inv_freq) + table * rope.inv_freq_stride);
  for (int i = static_cast<int>(threadIdx.x); i < rope.n_dims / 2; i += static_cast<int>(kThreads)) {
    const double angle = position * cu::ld_global(frequencies + i);
    double sine = 0, cosine = 0;
    sincos(angle, &sine, &cosine);
    cu::st_shared(angles + angle_place(i),
                  float2{static_cast<float>(cosine * scale), static_cast<float>(sine * scale)});
  }
  return true;
}

// A lane has elements [8 lane, 8 lane + 8) of its warp's head; those from dim on are zero.
__device__ __forceinline__ void normalize(const NormCall& norm, float* x, std::int64_t dim) {
  const int first = static_cast<int>(threadIdx.x % 32) * kEach;
  const float n = static_cast<float>(dim);
  float sum = 0.0f, mean = 0.0f;
  if (norm.layer) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) sum += x[i];
    mean = warp_sum(sum) / n;
    sum = 0.0f;
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const float off = first + i < dim ? x[i] - mean : 0.0f;
    sum += off * off;
  }
  const float factor = 1.0f / sqrtf(warp_sum(sum) / n + norm.eps);
  float weight[kEach], bias[kEach] = {};
#pragma unroll
  for (int i = 0; i < kEach; ++i) weight[i] = 1.0f;
  if (norm.weight != nullptr) {
    load_head(norm.weight, dim, weight);
#pragma unroll
    for (int i = 0; i < kEach; ++i) weight[i] += norm.unit_offset;
  }
  if (norm.bias != nullptr) load_head(norm.bias, dim, bias);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (first + i < dim) x[i] = (x[i] - mean) * factor * weight[i] + bias[i];
  }
}

// Element `place` of the head, of which each lane may want another one.
__device__ __forceinline__ float element(const float* x, int place) {
  float found = 0.0f;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const float other = __shfl_sync(kAll, x[i], place / kEach);
    if (place % kEach == i) found = other;
  }
  return found;
}

__device__ __forceinline__ void rotate(const RopeCall& rope, const float2* angles, float* x) {
  const int first = static_cast<int>(threadIdx.x % 32) * kEach, pairs = rope.n_dims / 2;
  float before[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) before[i] = x[i];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int place = first + i;
    const bool rotates = place < rope.n_dims;
    float other;
    int pair;
    bool upper;
    if (rope.interleaved) {
      other = before[i ^ 1];
      pair = place / 2;
      upper = i % 2 != 0;
    } else {
      upper = place >= pairs;
      pair = upper ? place - pairs : place;
      const int partner = !rotates ? 0 : upper ? place - pairs : place + pairs;
      // Where halves are whole lanes, the partner is the same element of another lane.
      other = pairs % kEach == 0 ? __shfl_sync(kAll, before[i], partner / kEach) : element(before, partner);
    }
    if (!rotates) continue;
    const float2 angle = cu::ld_shared(angles + angle_place(pair));
    x[i] = upper ? other * angle.y + before[i] * angle.x : before[i] * angle.x - other * angle.y;
  }
}

// Where a token's head goes in the cache; -1 for nowhere.
__device__ __forceinline__ std::int64_t cache_place(const KvWriteCall& write, std::int64_t token, std::int64_t head) {
  const CacheView& cache = write.cache;
  const std::int64_t slot = cu::ld_global(write.slots + token);
  if (slot < 0 || slot >= cache.pages * cache.page_size) {
    if (slot != -1 && threadIdx.x % 32 == 0) report(write.fault, kSlotFault);
    return -1;
  }
  return place_of(cache, slot / cache.page_size, head, slot % cache.page_size);
}

// A block has one token, each of its warps one of the heads of q, k or v, in this order.
template <class A, bp_type kType>
__global__ void __launch_bounds__(kThreads) heads_kernel(const HeadsCall call) {
  CU_SHARED(float2, angles, [kEach * kLine]);
  static_assert(kMostPairs <= kEach * (kLine - 2), "a place for each pair");
  const KvWriteCall& write = call.write;
  const std::int64_t token = blockIdx.x, kv_heads = write.cache.heads;
  std::int64_t head = std::int64_t{blockIdx.y} * kWarps + threadIdx.x / 32;
  const bool is_q = head < call.heads, is_k = !is_q && head < call.heads + kv_heads;
  const bool is_any = head < call.heads + 2 * kv_heads;
  if (!is_q) head -= is_k ? call.heads : call.heads + kv_heads;
  if (CU_FAULT("heads.first_value") && !is_q && !is_k && is_any) head = 0;
  const Rows& from = is_q ? call.q : is_k ? write.k : write.v;
  const CacheSide& side = is_q || is_k ? write.cache.k : write.cache.v;

  float x[kEach];
  A* row = is_any ? row_of<A>(from, token * (is_q ? call.heads : kv_heads) + head) : nullptr;
  if (is_any) load_head<A>(row, side.dim, x);  // on their way while the angles are found
  if (call.rope.n_dims > 0) {
    if (!find_angles(call.rope, token, write.fault, angles)) return;
    if (!CU_FAULT("heads.dropped_barrier")) __syncthreads();
  }
  if (!is_any) return;
  if (is_q || is_k) {
    const NormCall& norm = is_q ? call.q_norm : call.k_norm;
    if (is_q ? call.normalizes_q : call.normalizes_k && !CU_FAULT("heads.plain_keys")) normalize(norm, x, side.dim);
    if (call.rope.n_dims > 0) rotate(call.rope, angles, x);
  }
  if (is_q) return store_head(row, side.dim, x);
  const std::int64_t place = cache_place(write, token, head);
  if (place >= 0) Cached<kType>::store(side, place, x);
}

}  // namespace

cudaError_t enqueue(cudaStream_t stream, const HeadsCall& call) {
  const std::int64_t heads = call.heads + 2 * call.write.cache.heads;
  if (call.write.tokens == 0 || heads == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(call.write.tokens), blocks_for(heads, kWarps));
  return visit_activation(call.activation, [&]<class A>() {
    return visit_cache(call.write.cache.type, [&]<bp_type kType>() {
      return launch(stream, heads_kernel<A, kType>, grid, kThreads, 0, call);
    });
  });
}

}  // namespace backplane::cuda
