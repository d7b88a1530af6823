// Products for few tokens, where reading the weights is all the work: what LINEAR, LINEAR_ADD and the fused ops share.
//
// A warp has two rows of the matrix; its lanes have columns that follow each other, as many at a time as make 16 bytes,
// and decode them once for all tokens. What a GPU needs to keep its memory busy is bytes on their way: an H200 has to
// wait for about 25 KB on each of its multiprocessors at any moment (4.8 TB/s for 700 ns, divided by 132). So with one
// token or two each lane has some columns of both rows on their way while it multiplies others, the first ones before
// the activations are there: with 16 warps on a multiprocessor 36 KB or more. With more tokens it multiplies for longer
// than it waits.
//
// It also needs few instructions: at 4.8 TB/s an H200 has 3.5 of them for a weight of Q4_K. Scales are therefore
// applied to sums of spans of columns.
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

// How much more than their values weights are when they are multiplied, before their scale. With it, the sums of
// activations have to be taken off again, and where a large activation meets a small weight some digits are lost: few
// in activations of BF16, too many in those of F32, whose weights are made exact at a subtraction each.
template <class A, bp_type kType>
constexpr int kOffset = sizeof(A) == 4 ? 0 : Format<kType>::kCenter;

// Of activations in shared memory: a float4 for each lane and each part of what it takes at once. Lines of lanes are
// moved apart so far that those who fill them, in the order of columns, don't meet in a bank either. Then, where
// weights need them, the sums of spans of columns: one for each lane and each span of what it takes at once.
template <class A, bp_type kType, int kTokens>
struct XLayout {
  using F = Format<kType>;
  static constexpr int kParts = F::kColumns / 4;
  static constexpr int kLine = 32 + (kParts == 1 ? 0 : 8 / kParts);
  static constexpr int kChunk = kParts * kLine;      // of 32 lanes
  static constexpr int kColumns = 32 * F::kColumns;  // that these are
  static constexpr int kChunks = kPieceColumns<kTokens> / kColumns, kPitch = kChunks * kChunk;
  static constexpr bool kHasSums = kOffset<A, kType> != 0 || F::kAddend;
  static constexpr int kSpan = kHasSums ? F::kSpan : 0;
  static constexpr int kSpans = kSpan == 0 ? 0 : F::kColumns / kSpan, kSumChunk = 32 * kSpans;
  static constexpr int kSumPitch = kChunks * kSumChunk;
  static __device__ __forceinline__ int place(int four) {
    return four / (32 * kParts) * kChunk + four % kParts * kLine + four / kParts % 32;
  }
  // Of the span that ends with these four columns.
  static __device__ __forceinline__ int sum_place(int four) {
    const int span = four / (kSpan / 4);
    return span / kSumChunk * kSumChunk + span % kSpans * 32 + span / kSpans % 32;
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

// What of a row's four columns is as it was read.
template <class A>
using FourBits = std::conditional_t<sizeof(A) == 4, uint4, uint2>;
template <class A>
__device__ __forceinline__ float4 four_of(const FourBits<A>& bits) {
  A four[4];
  memcpy(static_cast<void*>(four), &bits, sizeof(bits));
  return {to_float(four[0]), to_float(four[1]), to_float(four[2]), to_float(four[3])};
}

// Whether all rows of activations, and what their norm multiplies with, can be read four columns at a time.
template <class A>
__device__ __forceinline__ bool has_whole_fours(const ProductsCall& call) {
  const Rows& rows = call.x_norm.x.data != nullptr ? call.x_norm.x : call.x;
  const auto bits = reinterpret_cast<std::uintptr_t>(rows.data) | static_cast<std::uintptr_t>(rows.inner_stride);
  const auto norms =
      reinterpret_cast<std::uintptr_t>(call.x_norm.weight) | reinterpret_cast<std::uintptr_t>(call.x_norm.bias);
  return bits % (4 * sizeof(A)) == 0 && norms % 16 == 0 && call.parts[0].weight.columns % 4 == 0;
}

// Columns from `begin` on of all tokens to shared memory, normalized where the call has a norm; zero beyond the last
// one, up to a whole chunk. Threads go through tokens and columns together, with some of them on their way at once.
template <class A, bp_type kType, int kTokens, bool kWhole>
__device__ __forceinline__ void stage(const ProductsCall& call, const Moments* moments, std::int64_t first_token,
                                      std::int64_t begin, float4* x, float* x_sums) {
  using Layout = XLayout<A, kType, kTokens>;
  constexpr int kAtOnce = !kWhole ? 1 : 2;
  const std::int64_t columns = call.parts[0].weight.columns;
  const bool has_norm = call.x_norm.x.data != nullptr;
  const Rows& rows = has_norm ? call.x_norm.x : call.x;
  const std::int64_t left = (columns - begin + Layout::kColumns - 1) / Layout::kColumns * Layout::kColumns;
  const int fours = static_cast<int>(left < kPieceColumns<kTokens> ? left : kPieceColumns<kTokens>) / 4;
  const std::int64_t tokens_left = call.tokens - first_token;
  const int tokens = tokens_left < kTokens ? static_cast<int>(tokens_left) : kTokens;
  const int all = (begin == 0 ? kTokens : tokens) * fours;  // those that aren't there are 0 once and for all
  const int threads = static_cast<int>(blockDim.x);
  for (int first = static_cast<int>(threadIdx.x); first < all; first += kAtOnce * threads) {
    FourBits<A> bits[kAtOnce];
    float4 four[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int i = first + n * threads, t = kTokens == 1 ? 0 : i / fours;
      const std::int64_t column = begin + 4 * (i - t * fours);
      const A* row = token_of<A>(rows, CU_FAULT("few.first_token") ? first_token : first_token + t);
      if constexpr (kWhole) {
        bits[n] = {};
        if (t < tokens && column < columns) bits[n] = cu::ld_global(reinterpret_cast<const FourBits<A>*>(row + column));
      } else {
        four[n] = t < tokens ? load_four(row, column, columns) : float4{0.0f, 0.0f, 0.0f, 0.0f};
      }
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int i = first + n * threads, t = kTokens == 1 ? 0 : i / fours, own = i - t * fours;
      if (i >= all) break;  // a whole warp
      if constexpr (kWhole) four[n] = four_of<A>(bits[n]);
      if (has_norm && t < tokens) {
        const Moments of{cu::ld_shared(&moments[t].mean),
                         cu::ld_shared(&moments[CU_FAULT("few.first_factor") ? 0 : t].factor)};
        four[n] = normalize_four(call.x_norm, of, four[n], begin + 4 * own, columns);
      }
      cu::st_shared(x + t * Layout::kPitch + Layout::place(own), four[n]);
      if constexpr (Layout::kSpan != 0) {
        float sum = sum_of(four[n]);
        for (int step = Layout::kSpan / 8; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (own % (Layout::kSpan / 4) == 0) cu::st_shared(x_sums + t * Layout::kSumPitch + Layout::sum_place(own), sum);
      }
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
