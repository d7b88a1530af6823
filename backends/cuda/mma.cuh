// Products of small matrices by a warp, on tensor cores (compute capability 8.0 and later), in F32 sums.
//
// d[16][8] += a[16][K] b[K][8], dealt out over the lanes as the PTX ISA has it for mma.sync.m16n8k16 and m16n8k8. With
// g = lane / 4 and t = lane % 4, and a "word" of two bfloat16 (K = 16) or one tf32 (K = 8):
//   a  words {row g, row g + 8} of the first half of K, then of the second: word t of the half
//   b  word t of column g: of the first half of K, then of the second
//   d  {row g: columns 2 t, 2 t + 1}, {row g + 8: the same}
// A row of K is 32 bytes either way, so the same loads serve both.
//
// Without a GPU the same functions go to tests/cuda_emulation, a whole array of products at a time.
#pragma once

#include <cuda_pipeline_primitives.h>

#include "backends/cuda/common.cuh"

#ifdef BACKPLANE_CUDA_EMULATED
#include <cuda_emulation/fragments.h>
#endif

namespace backplane::cuda {

// A tf32 has the range of a float and 11 bits of its fraction; the unit ignores the others.
enum class Unit { kBf16, kTf32 };

template <Unit kUnit>
__device__ __forceinline__ void multiply_one(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
#ifdef BACKPLANE_CUDA_EMULATED
  cuda_emulation::multiply_fragments({kUnit == Unit::kBf16 ? 16 : 8, 1, a, b, d});
#else
  if constexpr (kUnit == Unit::kBf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#endif
}

// d[i] += a b[i] for the first `count` of them, which is one number for the whole warp.
template <Unit kUnit, int kMost>
__device__ __forceinline__ void multiply(float (&d)[kMost][4], const std::uint32_t (&a)[4],
                                         const std::uint32_t (&b)[kMost][2], int count = kMost) {
#ifdef BACKPLANE_CUDA_EMULATED
  cuda_emulation::multiply_fragments({kUnit == Unit::kBf16 ? 16 : 8, count, a, b[0], d[0]});
#else
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    if (i < count) multiply_one<kUnit>(d[i], a, b[i]);
  }
#endif
}

// Four 8 x 8 matrices of 16 bits from shared memory: lane 8 i + r says where row r of matrix i begins, at a multiple of
// 16 bytes, and gets word t of row g of each. Words of 32 bits come the same way, four to a row. `transposed`: elements
// 2 t and 2 t + 1 of column g.
template <bool kTransposed = false>
__device__ __forceinline__ void load_matrices(std::uint32_t (&words)[4], const void* row) {
#ifdef BACKPLANE_CUDA_EMULATED
  cuda_emulation::load_matrices(words, row, kTransposed);
#else
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  }
#endif
}

// A float as two tf32 terms: 11 bits of its fraction, and what is left of it, to 11 bits again. Both have its sign, and
// the second is not 0 where it isn't, so that an infinity meets nothing in the other factor's terms that makes a NaN of
// it, unless the other factor is 0. Only a rest is rounded: x itself, scaled down, is one of 11 bits, infinite, or not
// a number, which rounding could turn into -0.
struct Terms {
  std::uint32_t high, low;
};
__device__ __forceinline__ Terms split(std::uint32_t bits) {
  const float x = __uint_as_float(bits);
  const std::uint32_t high = bits & 0xffffe000u;
  const float rest = x - __uint_as_float(high);  // not a number for an infinite x
  const std::uint32_t low = fabsf(rest) > 0.0f ? __float_as_uint(rest) + 0x1000u : __float_as_uint(x * 0x1p-26f);
  return {high, CU_FAULT("mma.lost_low_term") ? 0 : low};
}

// Columns of b, in one term or two.
template <int kTerms, int kMost>
struct Right {
  std::uint32_t high[kMost][2];
  std::uint32_t low[kTerms == 2 ? kMost : 1][2];

  __device__ __forceinline__ explicit Right(const std::uint32_t (&words)[kMost][2]) {
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        if constexpr (kTerms == 2) {
          const Terms terms = split(words[i][w]);
          high[i][w] = terms.high;
          low[i][w] = terms.low;
        } else {
          high[i][w] = words[i][w];
        }
      }
    }
  }
};

// How two factors are multiplied: as bfloat16, or as floats of which a single tf32 term is exact or isn't. Products of
// two low terms are left out unless kAll: they come to 2^-22 of a product on average.
template <Unit kUnit, int kLeftTerms = 1, int kRightTerms = 1, bool kAll = false>
struct Arithmetic {
  static constexpr Unit kUnitUsed = kUnit;
  static constexpr int kTermsOfRight = kRightTerms;
  static_assert(kUnit == Unit::kTf32 || (kLeftTerms == 1 && kRightTerms == 1));

  // Tensor cores cut off what doesn't fit into a sum. Where results are to be as exact as those of F32, they only add a
  // few products at a time, and the sums go on in F32.
  template <int kMost>
  static __device__ __forceinline__ void add(float (&d)[kMost][4], const std::uint32_t (&a)[4],
                                             const Right<kRightTerms, kMost>& b, int count) {
    if constexpr (kLeftTerms == 1 && kRightTerms == 1) {
      multiply<kUnit>(d, a, b.high, count);
    } else {
      float part[kMost][4] = {};
      std::uint32_t high[4], low[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const Terms terms = split(a[w]);
        high[w] = kLeftTerms == 2 ? terms.high : a[w];
        low[w] = terms.low;
      }
      if constexpr (kAll && kLeftTerms == 2 && kRightTerms == 2) multiply<kUnit>(part, low, b.low, count);
      if constexpr (kLeftTerms == 2) multiply<kUnit>(part, low, b.high, count);
      if constexpr (kRightTerms == 2) multiply<kUnit>(part, high, b.low, count);
      multiply<kUnit>(part, high, b.high, count);
#pragma unroll
      for (int i = 0; i < kMost; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) d[i][e] += part[i][e];
      }
    }
  }
};

__device__ __forceinline__ std::uint32_t pack_bf16(float first, float second) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
  std::uint32_t word;
  memcpy(&word, &both, sizeof(word));
  return word;
}

}  // namespace backplane::cuda
