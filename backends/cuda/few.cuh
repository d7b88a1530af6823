// Products for few tokens, where reading the weights is all the work: what LINEAR, LINEAR_ADD and the fused ops share.
//
// A warp has two rows of the matrix; its lanes have columns that follow each other, as many at a time as make 16 bytes,
// and decode them once for all tokens. What a GPU needs to keep its memory busy is bytes on their way: an H200 has to
// wait for about 25 KB on each of its multiprocessors at any moment (4.8 TB/s for 700 ns, divided by 132). So each lane
// asks for its next columns of both rows before it multiplies the ones it has, and for the first ones before the
// activations are there: with 16 warps on a multiprocessor these are 32 KB.
//
// Activations go to shared memory once for a block, which therefore has as many warps as the rows allow: they come from
// the second-level cache, and for 32 rows are a fifth of what the weights are in four bits.
#pragma once

#include "backends/cuda/activate.cuh"
#include "backends/cuda/candidate.cuh"
#include "backends/cuda/four.cuh"
#include "backends/cuda/linear.cuh"

namespace backplane::cuda {

using Purpose = ProductsCall::Purpose;

constexpr int kFewTokens = kMostFewTokens;
constexpr int kRowsPerWarp = 2;
constexpr int kMostWarps = 16;
constexpr int kMostRows = kMostWarps * kRowsPerWarp;
static_assert(kMostRows == kLargestRows);
constexpr int kResultLine = kMostRows + 2;  // of a token: lanes with both rows of several don't meet in a bank

// Columns of activations in shared memory at a time: 16 KB, or 32 for the most tokens.
template <int kTokens>
constexpr int kPieceColumns = kTokens == 1   ? 4096
                              : kTokens <= 4 ? 2048
                                             : 1024;

// A float4 for each lane and each part of what it takes at once. Lines of lanes are moved apart so far that those who
// fill them, in the order of columns, don't meet in a bank either.
template <bp_type kType>
struct XLayout {
  static constexpr int kParts = Format<kType>::kColumns / 4;
  static constexpr int kLine = 32 + (kParts == 1 ? 0 : 8 / kParts);
  static constexpr int kChunk = kParts * kLine;                  // of 32 lanes
  static constexpr int kColumns = 32 * Format<kType>::kColumns;  // that these are
  static __device__ __forceinline__ int place(int four) {
    return four / (32 * kParts) * kChunk + four % kParts * kLine + four / kParts % 32;
  }
};

// Columns from `begin` on of all tokens to shared memory; zero beyond the last one, up to a whole chunk.
template <class A, bp_type kType, int kTokens, int kPitch>
__device__ __forceinline__ void stage(const ProductsCall& call, std::int64_t first_token, std::int64_t begin,
                                      float4* x) {
  using Layout = XLayout<kType>;
  const std::int64_t columns = call.parts[0].weight.columns;
  const std::int64_t left = (columns - begin + Layout::kColumns - 1) / Layout::kColumns * Layout::kColumns;
  const int fours = static_cast<int>(left < kPieceColumns<kTokens> ? left : kPieceColumns<kTokens>) / 4;
  for (int t = 0; t < kTokens; ++t) {
    if (first_token + t >= call.tokens) break;  // nobody looks at the sums of the others
    const A* row = row_of<A>(call.x, CU_FAULT("few.first_token") ? first_token : first_token + t);
    for (int i = static_cast<int>(threadIdx.x); i < fours; i += static_cast<int>(blockDim.x)) {
      cu::st_shared(x + t * kPitch + Layout::place(i), load_four(row, begin + 4 * i, columns));
    }
  }
}

__device__ __forceinline__ float dot(const float4& x, const float* w, float sum) {
  sum = fmaf(x.x, w[0], sum);
  sum = fmaf(x.y, w[1], sum);
  sum = fmaf(x.z, w[2], sum);
  return fmaf(x.w, w[3], sum);
}

// The sums of N values over a warp, N a power of two. Each lane goes on with half of what it has, until it has one:
// the value number lane / (32 / N), with the bits that N times warp_sum would give, in few shuffles.
template <int N>
__device__ __forceinline__ float warp_sums(const float (&values)[N], int step = 16) {
  if constexpr (N == 1) {
    float sum = values[0];
    for (; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    return sum;
  } else {
    const bool upper = (static_cast<int>(threadIdx.x) & step) != 0;
    float half[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const float sent = upper ? values[i] : values[i + N / 2], kept = upper ? values[i + N / 2] : values[i];
      half[i] = kept + __shfl_xor_sync(0xffffffffu, sent, step);
    }
    return warp_sums(half, step / 2);
  }
}

}  // namespace backplane::cuda
