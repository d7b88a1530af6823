// Products for many tokens: tiles of 64 rows and 64 tokens, for which weights are decoded once.
#include "backends/cuda/linear.cuh"

namespace backplane::cuda {
namespace {

constexpr unsigned kManyThreads = 256;
constexpr int kTile = 64;   // rows and tokens of a block
constexpr int kDepth = 32;  // columns at a time

// Thread (tx, ty) has rows tx + 16 i and tokens ty + 16 j. A line of shared memory has one float more than the tile, so
// that the threads that fill it don't meet in a bank.
template <class A, bp_type kType>
__global__ void __launch_bounds__(kManyThreads) many_kernel(const LinearCall call) {
  CU_SHARED(float, x, [kDepth][kTile + 1]);
  CU_SHARED(float, w, [kDepth][kTile + 1]);
  const int thread = static_cast<int>(threadIdx.x), tx = thread % 16, ty = thread / 16;
  const std::int64_t first_row = std::int64_t{blockIdx.x} * kTile, first_token = std::int64_t{blockIdx.y} * kTile;
  const std::int64_t columns = call.weight.columns;
  float sums[4][4] = {};
  for (std::int64_t begin = 0; begin < columns; begin += kDepth) {
    __syncthreads();
    for (int i = thread; i < kTile * kDepth; i += kManyThreads) {
      const int token = i / kDepth, column = i % kDepth;
      const bool inside = first_token + token < call.tokens && begin + column < columns;
      cu::st_shared(&x[column][token],
                    inside ? to_float(cu::ld_global(row_of<A>(call.x, first_token + token) + begin + column)) : 0.0f);
    }
    const int row = thread / 4, oct = thread % 4;
    float decoded[8] = {};
    if (first_row + row < call.weight.rows && begin + oct * 8 < columns) {
      Format<kType>::decode(call.weight, first_row + row, begin / 8 + oct, decoded);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) cu::st_shared(&w[oct * 8 + i][row], decoded[i]);
    __syncthreads();
#pragma unroll 4
    for (int k = 0; k < kDepth; ++k) {
      float a[4], b[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        a[i] = cu::ld_shared(&w[k][tx + 16 * i]);
        b[i] = cu::ld_shared(&x[k][ty + 16 * i]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] = fmaf(b[j], a[i], sums[i][j]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::int64_t row = first_row + tx + 16 * i, token = first_token + ty + 16 * j;
      if (row < call.weight.rows && token < call.tokens) store<A>(call, token, row, sums[i][j]);
    }
  }
}

}  // namespace

cudaError_t enqueue_many(cudaStream_t stream, const LinearCall& call) {
  const dim3 grid(blocks_for(call.weight.rows, kTile), blocks_for(call.tokens, kTile));
  return visit_activation(call.activation, [&]<class A>() {
    return visit_format(call.weight.type, [&]<bp_type kType>() {
      return launch(stream, many_kernel<A, kType>, grid, kManyThreads, 0, call);
    });
  });
}

}  // namespace backplane::cuda
