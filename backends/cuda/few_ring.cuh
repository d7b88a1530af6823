// The weights of products for few tokens: which rows a block has, how they come, and how they are multiplied.
#pragma once

#include <climits>

#include "backends/cuda/few.cuh"

namespace backplane::cuda {

// Where the blocks of each part begin in the grid; those of none beyond its end.
struct Grid {
  unsigned first[3] = {0, UINT_MAX, UINT_MAX};
  unsigned blocks = 0;
};

// Where a block's rows are: rows [first, first + count) of a part, and with kGate of the next one too.
struct alignas(16) BlockRows {
  std::int64_t first;
  int part;
  int count;  // a power of two
};

__device__ __forceinline__ BlockRows block_rows(const ProductsCall& call, const Grid& grid) {
  const int warps = static_cast<int>(blockDim.x / 32);
  const int count = call.purpose == Purpose::kGate ? warps : warps * kRowsPerWarp;
  const unsigned block = blockIdx.x;
  const int part = block >= grid.first[2] ? 2 : block >= grid.first[1] ? 1 : 0;
  return {std::int64_t{block - grid.first[part]} * count, part, count};
}

// How many chunks of each row are on their way. With many tokens other warps multiply long enough meanwhile, and
// registers are few.
template <bp_type kType, int kTokens>
constexpr int kChunksAhead = kTokens <= 2 ? Format<kType>::kAhead : Format<kType>::kAhead / 2;

// A lane's columns of both rows, chunk after chunk: a ring of those that are on their way. Each goes to registers that
// nobody reads or moves before it is multiplied, and the next one to the same right after.
template <bp_type kType, int kTokens, bool kVectors>
struct Ring {
  using F = Format<kType>;
  static constexpr int kSize = kVectors ? kChunksAhead<kType, kTokens> : 1;
  static constexpr bool kKeepsPlanes = kTokens <= 2;  // costs registers, saves computing where they are

  typename F::Raw raw[kSize][kRowsPerWarp];
  const std::byte* rows[kRowsPerWarp];
  Planes planes[kRowsPerWarp];
  int next = 0;  // what the ring's first chunk reads next, in units of kColumns, and how many of them are left
  int left = 0;

  // Asks for a warp's first chunks.
  __device__ __forceinline__ void start(const ProductsCall& call, const BlockRows& block) {
    const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
    const Matrix& matrix = call.parts[block.part].weight;
    const bool gate = call.purpose == Purpose::kGate;
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) {
      const Matrix& own = gate && r > 0 ? call.parts[1].weight : matrix;
      const std::int64_t row = block.first + (gate ? warp : warp * kRowsPerWarp + r);
      rows[r] = row_at(own, row < matrix.rows ? row : matrix.rows - 1);  // beyond the last: nobody looks
      if (CU_FAULT("few.same_row") && !gate) rows[r] = rows[0];
      planes[r] = F::planes(own, rows[r], lane);
    }
    next = lane;
    left = static_cast<int>((call.parts[0].weight.columns + F::kColumns - 1) / F::kColumns) - lane;
    if (CU_FAULT("few.lost_tail")) --left;
#pragma unroll
    for (int place = 0; place < kSize; ++place) {
#pragma unroll
      for (int r = 0; r < kRowsPerWarp; ++r) raw[place][r] = {};
      load(call.parts[0].weight, place);
    }
    advance();
  }

  // The next chunk to a place of the ring. All parts' rows have their columns alike.
  __device__ __forceinline__ void load(const Matrix& matrix, int place) {
    const int number = next + 32 * place;
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) {
      if constexpr (!kVectors) {
        raw[place][r] = F::gather(matrix, rows[r], std::int64_t{number} * F::kColumns);
      } else {
        F::clear(raw[place][r]);
        if (left <= 32 * place) continue;
        if constexpr (kKeepsPlanes) {
          F::load(planes[r], place, raw[place][r]);
        } else {
          F::load(F::planes(matrix, rows[r], number), 0, raw[place][r]);
        }
      }
    }
  }
  __device__ __forceinline__ void advance() {
    next += 32 * kSize;
    left -= 32 * kSize;
    if constexpr (kKeepsPlanes) {
#pragma unroll
      for (int r = 0; r < kRowsPerWarp; ++r) cuda::advance<F>(planes[r], kSize);
    }
  }
};

// Adds the products of a part's four columns to sums, [row][token].
template <class A, bp_type kType, int kTokens>
__device__ __forceinline__ void add_part(const typename Format<kType>::Raw (&raw)[kRowsPerWarp], int part,
                                         const float4* x, float (&sums)[kRowsPerWarp * kTokens]) {
  using Layout = XLayout<A, kType, kTokens>;
  const int lane = static_cast<int>(threadIdx.x % 32);
  float w[kRowsPerWarp][4];
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    Format<kType>::part(raw[r], part, w[r]);
    constexpr int kLess = Format<kType>::kCenter - kOffset<A, kType>;
#pragma unroll
    for (int i = 0; i < 4 && kLess != 0; ++i) w[r][i] -= static_cast<float>(kLess);
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const float4 four = cu::ld_shared(x + t * Layout::kPitch + part * Layout::kLine + lane);
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) sums[r * kTokens + t] = dot(four, w[r], sums[r * kTokens + t]);
  }
}

// What a span of one token adds to the sums of both rows where `own` isn't finite: column by column, so that what is
// infinite in the activations is multiplied with a weight's sign.
template <class A, bp_type kType, int kTokens>
__device__ __forceinline__ void add_span_slowly(const typename Format<kType>::Raw (&raw)[kRowsPerWarp],
                                                const Scale (&scales)[kRowsPerWarp], int span, const float4* x,
                                                float (&added)[kRowsPerWarp]) {
  using F = Format<kType>;
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll 1
  for (int part = span * F::kSpan / 4; part < (span + 1) * F::kSpan / 4; ++part) {
    const float4 four = cu::ld_shared(x + part * XLayout<A, kType, kTokens>::kLine + lane);
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) {
      float w[4];
      F::part(raw[r], part, w);
      for (float& value : w) {
        value -= static_cast<float>(F::kCenter);
        value = fmaf(value, span == 0 ? scales[r].first : scales[r].second, scales[r].addend);
      }
      added[r] = dot(four, w, added[r]);
    }
  }
}

// Adds the products of a lane's columns to its sums. These go by columns in one order, for one token as for eight. `x`
// and `x_sums` are the activations of these columns.
template <class A, bp_type kType, int kTokens>
__device__ __forceinline__ void multiply(const typename Format<kType>::Raw (&raw)[kRowsPerWarp], const float4* x,
                                         const float* x_sums, float (&sums)[kRowsPerWarp * kTokens]) {
  using F = Format<kType>;
  using Layout = XLayout<A, kType, kTokens>;
  constexpr int kValues = kRowsPerWarp * kTokens;
  // With many tokens a part is work enough, and registers are few.
  [[maybe_unused]] constexpr int kPartsAtOnce = kTokens <= 4 ? 8 : 1;
  const int lane = static_cast<int>(threadIdx.x % 32);
  if constexpr (F::kSpan == 0) {
#pragma unroll
    for (int part = 0; part < Layout::kParts; ++part) add_part<A, kType, kTokens>(raw, part, x, sums);
  } else {
    Scale scales[kRowsPerWarp];
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) scales[r] = F::scale(raw[r], lane);
#pragma unroll
    for (int span = 0; span < F::kColumns / F::kSpan; ++span) {
      const auto sum_of_x = [&](int t) {
        return !Layout::kHasSums ? 0.0f : cu::ld_shared(x_sums + t * Layout::kSumPitch + span * 32 + lane);
      };
      float own[kValues];
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        own[i] = kOffset<A, kType> == 0 ? 0.0f : static_cast<float>(-kOffset<A, kType>) * sum_of_x(i % kTokens);
      }
#pragma unroll kPartsAtOnce
      for (int part = 0; part < F::kSpan / 4; ++part) {
        add_part<A, kType, kTokens>(raw, span * F::kSpan / 4 + part, x, own);
      }
      const auto add_own = [&](int i, float sum) {
        const Scale& scale = scales[i / kTokens];
        if constexpr (F::kAddend) sums[i] = fmaf(scale.addend, sum, sums[i]);
        sums[i] = fmaf(span == 0 ? scale.first : scale.second, own[i], sums[i]);
      };
      float check = 0.0f;  // stays 0 unless some sum isn't finite
#pragma unroll
      for (int i = 0; i < kValues && Layout::kHasSums; ++i) check = fmaf(own[i], 0.0f, check);
      if (check == 0.0f || CU_FAULT("few.infinite_span")) [[likely]] {
#pragma unroll
        for (int i = 0; i < kValues; ++i) add_own(i, sum_of_x(i % kTokens));
        continue;
      }
#pragma unroll 1
      for (int t = 0; t < kTokens; ++t) {
        float added[kRowsPerWarp] = {};
        add_span_slowly<A, kType, kTokens>(raw, scales, span, x + t * Layout::kPitch, added);
#pragma unroll
        for (int i = 0; i < kValues; ++i) {
          if (i % kTokens != t) continue;
          if (own[i] * 0.0f == 0.0f) {
            add_own(i, sum_of_x(t));
          } else {
            sums[i] += added[i / kTokens];
          }
        }
      }
    }
  }
}

}  // namespace backplane::cuda
