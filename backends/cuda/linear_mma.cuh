// What the products on tensor cores share. Weights are the left factor, their rows the rows of a; tokens are the
// columns of b, so that a few tokens take few products.
#pragma once

#include "backends/cuda/linear.cuh"
#include "backends/cuda/mma.cuh"

namespace backplane::cuda {

// How activations A and weights of a type are multiplied. BF16 activations take BF16 weights as they are, and rounded
// ones of a quantized type; what else there is goes through tf32, in which F16 and BF16 are exact.
template <class A, bp_type kType>
struct ProductOf {
  static constexpr bool kFloats = std::is_same_v<A, float>;
  static constexpr bool kQuantized = kType != BP_TYPE_F32 && kType != BP_TYPE_F16 && kType != BP_TYPE_BF16;
  static constexpr bool kBf16 = !kFloats && (kQuantized || kType == BP_TYPE_BF16);
  static constexpr int kWords = kBf16 ? 4 : 8;  // for eight columns
  static constexpr int kWeightTerms = kType == BP_TYPE_F16 || kType == BP_TYPE_BF16 ? 1 : 2;
  using Type =
      std::conditional_t<kBf16, Arithmetic<Unit::kBf16>, Arithmetic<Unit::kTf32, kWeightTerms, kFloats ? 2 : 1>>;
};

template <int kWords>
__device__ __forceinline__ void to_words(const float* values, std::uint32_t* words) {
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
    words[w] = kWords == 8 ? __float_as_uint(values[w]) : pack_bf16(values[2 * w], values[2 * w + 1]);
  }
}

// Columns [8 * oct, 8 * oct + 8) of a token's activations; zeros beyond the last one, and where there is no token.
template <int kWords, class A>
__device__ __forceinline__ void load_activations(const A* token, std::int64_t columns, std::int64_t oct,
                                                 std::uint32_t* words) {
  constexpr int kLoads = sizeof(A) / 2;
  const A* at = token + oct * 8;
  if (token != nullptr && oct * 8 + 8 <= columns && reinterpret_cast<std::uintptr_t>(at) % 16 == 0) {
    std::uint32_t loaded[4 * kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const uint4 bits = cu::ld_global(reinterpret_cast<const uint4*>(at) + i);
      memcpy(loaded + 4 * i, &bits, sizeof(bits));
    }
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      if constexpr (kWords == 4 * kLoads) {
        words[w] = loaded[w];
      } else {  // a BF16 is the upper half of a float
        words[w] = w % 2 == 0 ? loaded[w / 2] << 16 : loaded[w / 2] & 0xffff0000u;
      }
    }
    return;
  }
  float values[8] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (token != nullptr && oct * 8 + i < columns) values[i] = to_float(cu::ld_global(at + i));
  }
  to_words<kWords>(values, words);
}

// The same of a row of weights; zeros beyond the matrix.
template <class A, bp_type kType>
__device__ __forceinline__ void load_weights(const Matrix& matrix, std::int64_t row, std::int64_t oct,
                                             std::uint32_t* words) {
  constexpr int kWords = ProductOf<A, kType>::kWords;
  if constexpr (ProductOf<A, kType>::kBf16 && kType == BP_TYPE_BF16) {
    if (matrix.step == sizeof(A)) {  // as it is
      const bool inside = row < matrix.rows && oct * 8 < matrix.columns;
      const std::byte* at = inside ? matrix.data + row * matrix.pitch : nullptr;
      return load_activations<kWords>(reinterpret_cast<const A*>(at), matrix.columns, oct, words);
    }
  }
  float values[8] = {};
  if (row < matrix.rows && oct * 8 < matrix.columns) Format<kType>::decode(matrix, row, oct, values);
  to_words<kWords>(values, words);
}

// How many groups of eight tokens there are from `first` on, of kMost.
template <int kMost>
__device__ __forceinline__ int token_groups(const LinearCall& call, std::int64_t first) {
  const std::int64_t groups = (call.tokens - first + 7) / 8;
  return groups < 0 ? 0 : groups < kMost ? static_cast<int>(groups) : kMost;
}

}  // namespace backplane::cuda
