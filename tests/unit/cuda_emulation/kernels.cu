#include "tests/unit/cuda_emulation/kernels.h"

#include <cuda_pipeline.h>

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
