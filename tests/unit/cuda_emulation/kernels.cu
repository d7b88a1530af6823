#include "tests/unit/cuda_emulation/kernels.h"

#include <cuda_pipeline_primitives.h>

#include "backends/cuda/mma.cuh"

__global__ void add_vectors(const float* a, const float* b, float* sum, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) cu::st_global(sum + i, cu::ld_global(a + i) + cu::ld_global(b + i));
}

__global__ void sum_blocks(const float* in, float* out) {
  CU_SHARED(float, of_warp, [32]);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float sum = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (lane == 0) of_warp[warp] = sum;
  __syncthreads();
  if (warp != 0) return;
  sum = lane < blockDim.x / 32 ? of_warp[lane] : 0.0f;
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
  if (lane == 0) out[blockIdx.x] = sum;
}

template <bool kBarrier>
__global__ void spread_first(const float* in, float* out) {
  CU_SHARED(float, first);
  if (threadIdx.x == 0) first = in[0];
  if (kBarrier) __syncthreads();
  out[threadIdx.x] = first;
}
template __global__ void spread_first<true>(const float*, float*);
template __global__ void spread_first<false>(const float*, float*);

template <bool kBefore, bool kAfter>
__global__ void sum_over_blocks(const float* in, float* parts, unsigned* counter, float* total) {
  parts[blockIdx.x] = in[blockIdx.x];
  if (kBefore) __threadfence();
  if (atomicAdd(counter, 1u) != gridDim.x - 1) return;
  if (kAfter) __threadfence();
  atomicExch(counter, 0u);
  float sum = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) sum += parts[i];
  *total = sum;
}
template __global__ void sum_over_blocks<true, true>(const float*, float*, unsigned*, float*);
template __global__ void sum_over_blocks<false, true>(const float*, float*, unsigned*, float*);
template __global__ void sum_over_blocks<true, false>(const float*, float*, unsigned*, float*);

__global__ void reverse_blocks(const int* in, int* out) {
  CU_DYN_SHARED(int, tile);
  const unsigned size = blockDim.x * blockDim.y, place = threadIdx.y * blockDim.x + threadIdx.x;
  const unsigned base = (blockIdx.y * gridDim.x + blockIdx.x) * size;
  tile[place] = in[base + place];
  __syncthreads();
  out[base + place] = tile[size - 1 - place];
}

__global__ void barrier_for_half() {
  if (threadIdx.x < blockDim.x / 2) __syncthreads();
}

__global__ void shuffle_for_half() {
  if (threadIdx.x < 16) {
    __shfl_sync(0xffffffffu, 1, 0);
  } else {
    __syncthreads();
  }
}

__global__ void mixed_barriers() {
  if (threadIdx.x < 16) {
    __shfl_sync(0xffffffffu, 1, 0);
  } else {
    __ballot_sync(0xffffffffu, 1);
  }
}

__global__ void trap_in_thread(int thread) {
  if (static_cast<int>(threadIdx.x) == thread && blockIdx.x == 1) __trap();
}

__global__ void ask_warp(unsigned* ballots, int* any, int* all, float* up, float* down, int* sums) {
  const int lane = static_cast<int>(threadIdx.x);
  ballots[lane] = __ballot_sync(0xffffffffu, lane % 3 == 0);
  any[lane] = __any_sync(0xffffffffu, lane == 31);
  all[lane] = __all_sync(0xffffffffu, lane < 31);
  up[lane] = __shfl_up_sync(0xffffffffu, static_cast<float>(lane), 1, 16);
  down[lane] = __shfl_down_sync(0xffffffffu, static_cast<float>(lane), 2, 8);
  const unsigned own_half = lane < 16 ? 0x0000ffffu : 0xffff0000u;
  sums[lane] = __reduce_add_sync(own_half, lane);
}

__global__ void count_atomically(int* count, unsigned* largest, float* total, unsigned long long* wide) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(count, 1);
  atomicMax(largest, i);
  atomicAdd(total, 0.5f);
  atomicAdd(wide, 1ULL << 32);
}

template <bool kWait>
__global__ void copy_tiles(const float4* in, float4* out) {
  CU_SHARED(float4, tile, [64]);
  const unsigned i = threadIdx.x;
  __pipeline_memcpy_async(&tile[i], in + i, sizeof(float4));
  __pipeline_commit();
  if (kWait) __pipeline_wait_prior(0);
  __syncthreads();
  out[i] = tile[i ^ 1];
}
template __global__ void copy_tiles<true>(const float4*, float4*);
template __global__ void copy_tiles<false>(const float4*, float4*);

namespace wmma = nvcuda::wmma;

template <class T>
__global__ void multiply_tile(const T* a, const T* b, float* c, int depth) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> rows;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major> columns;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums;
  wmma::fill_fragment(sums, 0.0f);
  for (int k = 0; k < depth; k += 16) {
    wmma::load_matrix_sync(rows, a + k, static_cast<unsigned>(depth));
    wmma::load_matrix_sync(columns, b + k, static_cast<unsigned>(depth));
    wmma::mma_sync(sums, rows, columns, sums);
  }
  wmma::store_matrix_sync(c, sums, 16, wmma::mem_row_major);
}
template __global__ void multiply_tile<__half>(const __half*, const __half*, float*, int);
template __global__ void multiply_tile<__nv_bfloat16>(const __nv_bfloat16*, const __nv_bfloat16*, float*, int);

__global__ void multiply_tile_tf32(const float* a, const float* b, float* c, int depth) {
  wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> rows;
  wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::col_major> columns;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sums;
  wmma::fill_fragment(sums, 0.0f);
  for (int k = 0; k < depth; k += 8) {
    wmma::load_matrix_sync(rows, a + k, static_cast<unsigned>(depth));
    wmma::load_matrix_sync(columns, b + k, static_cast<unsigned>(depth));
    for (float& x : rows.x) x = wmma::__float_to_tf32(x);
    for (float& x : columns.x) x = wmma::__float_to_tf32(x);
    wmma::mma_sync(sums, rows, columns, sums);
  }
  wmma::store_matrix_sync(c, sums, 16, wmma::mem_row_major);
}

namespace {

constexpr int kFragments = 3;
using backplane::cuda::Unit;

/// Element i of a lane's fragments, as the PTX ISA says which it is: groupID and threadID_in_group are its names.
template <Unit kUnit>
struct Element {
  static constexpr bool kTf32 = kUnit == Unit::kTf32;
  static constexpr int kDepth = kTf32 ? 8 : 16;
  int group_id, thread_in_group;

  __device__ int a(int i) const {
    const bool upper = kTf32 ? i == 0 || i == 2 : (0 <= i && i < 2) || (4 <= i && i < 6);
    const int row = upper ? group_id : group_id + 8;
    const int column = kTf32   ? (i < 2 ? thread_in_group : thread_in_group + 4)
                       : i < 4 ? thread_in_group * 2 + (i & 1)
                               : thread_in_group * 2 + (i & 1) + 8;
    return row * kDepth + column;
  }
  __device__ int b(int i) const {
    const int row = kTf32   ? (i == 0 ? thread_in_group : thread_in_group + 4)
                    : i < 2 ? thread_in_group * 2 + (i & 1)
                            : thread_in_group * 2 + (i & 1) + 8;
    return row * 8 + group_id;
  }
  __device__ int d(int i) const { return (i < 2 ? group_id : group_id + 8) * 8 + thread_in_group * 2 + (i & 1); }
};

template <Unit kUnit>
__device__ void multiply_by_isa(const float* a, const float* b, float* d, int count) {
  using Place = Element<kUnit>;
  const int lane = static_cast<int>(threadIdx.x);
  const Place place{lane >> 2, lane % 4};
  const auto word = [](const float* from, int first, int second) {
    return Place::kTf32 ? __float_as_uint(from[first]) : backplane::cuda::pack_bf16(from[first], from[second]);
  };
  std::uint32_t left[4], right[kFragments][2];
  float sums[kFragments][4];
  const int each = Place::kTf32 ? 1 : 2;  // elements of a word
  for (int w = 0; w < 4; ++w) left[w] = word(a, place.a(w * each), place.a(w * each + each - 1));
  for (int n = 0; n < kFragments; ++n) {
    const float* from = b + n * Place::kDepth * 8;
    for (int w = 0; w < 2; ++w) right[n][w] = word(from, place.b(w * each), place.b(w * each + each - 1));
    for (int i = 0; i < 4; ++i) sums[n][i] = d[n * 128 + place.d(i)];
  }
  backplane::cuda::multiply<kUnit>(sums, left, right, count);
  for (int n = 0; n < kFragments; ++n) {
    for (int i = 0; i < 4; ++i) d[n * 128 + place.d(i)] = sums[n][i];
  }
}

}  // namespace

__global__ void multiply_fragments_bf16(const float* a, const float* b, float* d, int count) {
  multiply_by_isa<Unit::kBf16>(a, b, d, count);
}
__global__ void multiply_fragments_tf32(const float* a, const float* b, float* d, int count) {
  multiply_by_isa<Unit::kTf32>(a, b, d, count);
}

template <bool kTransposed>
__global__ void load_fragments(const uint4* rows, uint4* out) {
  CU_SHARED(uint4, tile, [32]);
  cu::st_shared(&tile[threadIdx.x], rows[threadIdx.x]);
  __syncwarp();
  std::uint32_t words[4];
  backplane::cuda::load_matrices<kTransposed>(words, &tile[threadIdx.x]);
  out[threadIdx.x] = make_uint4(words[0], words[1], words[2], words[3]);
}
template __global__ void load_fragments<false>(const uint4*, uint4*);
template __global__ void load_fragments<true>(const uint4*, uint4*);

__global__ void copy_strided(const float* in, float* out, int stride) {
  const unsigned i = (blockIdx.x * blockDim.x + threadIdx.x) * static_cast<unsigned>(stride);
  cu::st_global(out + i, cu::ld_global(in + i));
}

__global__ void copy_vectors(const float4* in, float4* out) {
  cu::st_global(out + threadIdx.x, cu::ld_global(in + threadIdx.x));
}

template <int kColumns>
__global__ void transpose_tile(const float* in, float* out) {
  CU_SHARED(float, tile, [32][kColumns]);
  const unsigned lane = threadIdx.x;
  for (int row = 0; row < 32; ++row) cu::st_shared(&tile[row][lane], in[row * 32 + lane]);
  __syncwarp();
  for (int row = 0; row < 32; ++row) out[row * 32 + lane] = cu::ld_shared(&tile[lane][row]);
}
template __global__ void transpose_tile<32>(const float*, float*);
template __global__ void transpose_tile<33>(const float*, float*);

__global__ void fill_value(float* out, float value) { out[blockIdx.x * blockDim.x + threadIdx.x] = value; }

__global__ void write_past(float* out, int count) { out[count] = 1.0f; }
