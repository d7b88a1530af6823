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

// What a token's norm subtracts and multiplies with.
struct Moments {
  float mean, factor;
};

// The moments of all tokens. Columns are summed in 32 classes and these in one order, whatever the number of warps:
// then a token's norm doesn't depend on how many there are. `room` is 32 floats a token; a barrier has to follow.
template <class A, int kTokens>
__device__ __forceinline__ void find_moments(const ProductsCall& call, std::int64_t first_token, float* room,
                                             Moments* moments) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int warps = static_cast<int>(blockDim.x / 32);
  const std::int64_t columns = call.parts[0].weight.columns, left = call.tokens - first_token;
  const int tokens = left < kTokens ? static_cast<int>(left) : kTokens;
  const bool layer = call.x_norm.layer;
  for (int pass = layer ? 0 : 1; pass < 2; ++pass) {  // the mean, the squares of what is off it
    for (int i = warp; i < tokens * 32; i += warps) {
      const A* row = token_of<A>(call.x_norm.x, first_token + i / 32);
      const float mean = layer && pass == 1 ? cu::ld_shared(&moments[i / 32].mean) : 0.0f;
      const std::int64_t end = CU_FAULT("few.moments_tail") ? columns - 4 : columns;
      float sum = 0.0f;
      for (std::int64_t column = (i % 32 * 32 + lane) * 4; column < end; column += 32 * 32 * 4) {
        const float4 x = load_four(row, column, columns);
        const auto term = [&](float value, int number) {
          if (pass == 0) return value;
          return column + number < columns ? (value - mean) * (value - mean) : 0.0f;
        };
        sum += sum_of({term(x.x, 0), term(x.y, 1), term(x.z, 2), term(x.w, 3)});
      }
      sum = warp_sum(sum);
      if (lane == 0) cu::st_shared(room + i, sum);
    }
    __syncthreads();
    for (int t = warp; t < tokens; t += warps) {
      const float average = warp_sum(cu::ld_shared(room + t * 32 + lane)) / static_cast<float>(columns);
      if (lane != 0) continue;
      if (pass == 0) {
        cu::st_shared(&moments[t].mean, average);
      } else {
        if (!layer) cu::st_shared(&moments[t].mean, 0.0f);
        cu::st_shared(&moments[t].factor, 1.0f / sqrtf(average + call.x_norm.eps));
      }
    }
    if (pass == 0) __syncthreads();
  }
}

// Four columns of a row, normalized; what lies beyond the last one stays 0.
__device__ __forceinline__ float4 normalize_four(const XNorm& norm, const Moments& moments, const float4& x,
                                                 std::int64_t column, std::int64_t columns) {
  float4 weight{1.0f, 1.0f, 1.0f, 1.0f}, bias{0.0f, 0.0f, 0.0f, 0.0f};
  if (norm.weight != nullptr) {
    weight = each([&](float w) { return norm.unit_offset + w; }, load_four(norm.weight, column, columns));
  }
  if (norm.bias != nullptr) bias = load_four(norm.bias, column, columns);
  const auto normalize = [&](float v, float w, float b) { return (v - moments.mean) * moments.factor * w + b; };
  const float4 y = each(normalize, x, weight, bias);
  const auto inside = [&](float value, int number) { return column + number < columns ? value : 0.0f; };
  return {inside(y.x, 0), inside(y.y, 1), inside(y.z, 2), inside(y.w, 3)};
}

// Columns from `begin` on of all tokens to shared memory, normalized where the call has a norm; zero beyond the last
// one, up to a whole chunk.
template <class A, bp_type kType, int kTokens, int kPitch>
__device__ __forceinline__ void stage(const ProductsCall& call, const Moments* moments, std::int64_t first_token,
                                      std::int64_t begin, float4* x) {
  using Layout = XLayout<kType>;
  const std::int64_t columns = call.parts[0].weight.columns;
  const bool has_norm = call.x_norm.x.data != nullptr;
  const std::int64_t left = (columns - begin + Layout::kColumns - 1) / Layout::kColumns * Layout::kColumns;
  const int fours = static_cast<int>(left < kPieceColumns<kTokens> ? left : kPieceColumns<kTokens>) / 4;
  for (int t = 0; t < kTokens; ++t) {
    if (first_token + t >= call.tokens) break;  // nobody looks at the sums of the others
    const std::int64_t token = CU_FAULT("few.first_token") ? first_token : first_token + t;
    const A* row = token_of<A>(has_norm ? call.x_norm.x : call.x, token);
    Moments own{};
    if (has_norm) {
      own.mean = cu::ld_shared(&moments[t].mean);
      own.factor = cu::ld_shared(&moments[CU_FAULT("few.first_factor") ? 0 : t].factor);
    }
    for (int i = static_cast<int>(threadIdx.x); i < fours; i += static_cast<int>(blockDim.x)) {
      float4 four = load_four(row, begin + 4 * i, columns);
      if (has_norm) four = normalize_four(call.x_norm, own, four, begin + 4 * i, columns);
      cu::st_shared(x + t * kPitch + Layout::place(i), four);
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
