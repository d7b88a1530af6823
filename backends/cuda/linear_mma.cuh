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

// ---- What is fetched, as it lies in memory. Words for a product are made of it when it is multiplied and not before:
// whatever is done to it waits for it. Words go by halves, of four columns, which takes fewer registers.

// Eight floats of a row. `inside`: they are there; else zeros.
template <class T>
struct RawOct {
  static constexpr int kLoads = static_cast<int>(sizeof(T)) / 2;
  uint4 loaded[kLoads];

  __device__ __forceinline__ void fetch(const std::byte* at, bool inside) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      loaded[i] = {};
      if (inside) loaded[i] = load_at<uint4>(at, i);
    }
  }
  // Those of which there are `count`, one by one, for rows that don't lie as vectors.
  __device__ __forceinline__ void gather(const std::byte* at, std::int64_t step, std::int64_t count) {
    T values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = i < count ? load_at<T>(at + i * step, 0) : from_float<T>(0.0f);
    memcpy(loaded, static_cast<const void*>(values), sizeof(loaded));
  }

  template <int kWords>
  __device__ __forceinline__ void to_words(int half, std::uint32_t* words) const {
    std::uint32_t bits[2 * kLoads], others[2 * kLoads];
    memcpy(bits, loaded, sizeof(bits));
    memcpy(others, reinterpret_cast<const std::byte*>(loaded) + sizeof(bits), sizeof(others));
#pragma unroll
    for (int w = 0; w < kWords / 2; ++w) {
      const int word = w * 4 * kLoads / kWords;
      const std::uint32_t own = half == 0 ? bits[word] : others[word];
      if constexpr (kWords == 4 * kLoads) {
        words[w] = own;
      } else if constexpr (std::is_same_v<T, __half>) {
        words[w] = __float_as_uint(half_of(own >> w % 2 * 16));
      } else {  // a BF16 is the upper half of a float
        words[w] = w % 2 == 0 ? own << 16 : own & 0xffff0000u;
      }
    }
  }
};

// The scales of a unit, kept whole by a lane, or where kSpread is set a word by each of the four lanes that share a row
// and eight units: registers are scarce where they wait for memory. Such lanes fetch and join together.
template <class Scales, bool kSpread>
struct RawScale {
  typename Scales::Raw raw;

  __device__ __forceinline__ void clear() { raw = {}; }
  __device__ __forceinline__ void fetch(const Matrix& matrix, const std::byte* row, int unit) {
    raw = Scales::load(row + matrix.scales + Scales::offset(unit), row + matrix.last + unit / 8 * 2);
  }
  __device__ __forceinline__ typename Scales::Raw join() const { return raw; }
};
template <>
struct RawScale<PackedScales, true> {
  std::uint32_t word;

  __device__ __forceinline__ void clear() { word = 0; }
  __device__ __forceinline__ void fetch(const Matrix& matrix, const std::byte* row, int unit) {
    word = load_at<std::uint32_t>(row + matrix.scales, unit / 8 * 4 + static_cast<int>(threadIdx.x % 4));
  }
  __device__ __forceinline__ PackedScales::Raw join() const {
    const auto of = [&](int lane) { return __shfl_sync(0xffffffffu, word, lane, 4); };
    return {of(0), of(1), of(2), of(3)};
  }
};
template <>
struct RawScale<SignedScales, true> {
  std::uint32_t word;  // neighbors share the unit

  __device__ __forceinline__ void clear() { word = 0; }
  __device__ __forceinline__ void fetch(const Matrix& matrix, const std::byte* row, int unit) {
    const bool small = threadIdx.x % 2 == 0;
    word = load_at<std::uint16_t>(row + (small ? matrix.scales : matrix.last), small ? unit : unit / 8);
  }
  __device__ __forceinline__ SignedScales::Raw join() const {
    return {__shfl_sync(0xffffffffu, word, 0, 2), __shfl_sync(0xffffffffu, word, 1, 2)};
  }
};

// Of a row of weights what a lane takes at once: kOcts of eight columns, the number-th of the row. Of a quantized row,
// whose bytes have a column of either half of a unit, these are the (number % 2)-th eight of unit number / 2, and the
// same of its second half.
template <bp_type kType, bool kSpread = false>
struct RawWeights {
  using Type = Format<kType>;
  using Scales = typename Type::Scales;
  using Factors = Scale;
  static constexpr int kOcts = 2;
  static constexpr int kHighBits = block_shape(kType).high_bits;
  static constexpr bool kBytes = block_shape(kType).quant_bits == 8;
  uint2 quants, second;
  RawScale<Scales, kSpread> scale;

  static __device__ __forceinline__ int oct_of(int number, int which) {
    return number / 2 * 4 + number % 2 + which * 2;
  }

  __device__ __forceinline__ void fetch(const Matrix& matrix, const std::byte* row, int number, bool inside) {
    quants = second = {};
    scale.clear();
    if (!inside) return;
    const int unit = number / 2;
    quants = load_at<uint2>(row, number);
    if constexpr (kBytes) second = load_at<uint2>(row + matrix.second, number);
    if constexpr (kHighBits == 1) second.x = load_at<std::uint32_t>(row + matrix.second, unit);
    if constexpr (kHighBits == 2) second.x = load_at<std::uint32_t>(row + matrix.second, number);
    scale.fetch(matrix, row, unit);
  }
  __device__ __forceinline__ void gather(const Matrix& matrix, const std::byte* row, int number, bool inside) {
    fetch(matrix, row, number, inside);
  }

  // What all its columns need.
  __device__ __forceinline__ Factors factors(int number) const { return Scales::scale(scale.join(), number / 2); }
  // Words of four columns. Their bits are brought to where the first columns of a unit have theirs.
  template <int kWords>
  __device__ __forceinline__ void to_words(int number, int which, int half, const Factors& all,
                                           std::uint32_t* words) const {
    const float factor = which == 0 ? all.first : all.second;
    typename Type::Raw raw{};
    if constexpr (kBytes) {
      const uint2 both = which == 0 ? quants : second;
      raw.first.x = half == 0 ? both.x : both.y;
    } else {
      raw.quants.x = (half == 0 ? quants.x : quants.y) >> 4 * which;
      raw.high[0] = second.x >> (4 * which + kHighBits * half + (kHighBits == 1 ? number % 2 * 2 : 0));
    }
    float values[4];
    Type::part(raw, 0, values);
    const float each = factor / Type::kUnitOfValues;  // a power of two: exact
#pragma unroll
    for (float& value : values) {
      value = (value - static_cast<float>(Type::kCenter)) * each;
      if constexpr (Type::kAddend) value += all.addend;
    }
#pragma unroll
    for (int w = 0; w < kWords / 2; ++w) {
      words[w] = kWords == 8 ? __float_as_uint(values[w]) : pack_bf16(values[2 * w], values[2 * w + 1]);
    }
  }
};

template <class T>
struct RawFloats {
  struct Factors {};
  static constexpr int kOcts = 1;
  RawOct<T> oct;

  static __device__ __forceinline__ int oct_of(int number, int) { return number; }
  __device__ __forceinline__ void fetch(const Matrix&, const std::byte* row, int number, bool inside) {
    oct.fetch(row + number * (8 * sizeof(T)), inside);
  }
  __device__ __forceinline__ void gather(const Matrix& matrix, const std::byte* row, int number, bool inside) {
    const std::int64_t first = std::int64_t{number} * 8;
    oct.gather(row + first * matrix.step, matrix.step, inside ? matrix.columns - first : 0);
  }
  __device__ __forceinline__ Factors factors(int) const { return {}; }
  template <int kWords>
  __device__ __forceinline__ void to_words(int, int, int half, const Factors&, std::uint32_t* words) const {
    oct.template to_words<kWords>(half, words);
  }
};
template <bool kSpread>
struct RawWeights<BP_TYPE_F32, kSpread> : RawFloats<float> {};
template <bool kSpread>
struct RawWeights<BP_TYPE_F16, kSpread> : RawFloats<__half> {};
template <bool kSpread>
struct RawWeights<BP_TYPE_BF16, kSpread> : RawFloats<__nv_bfloat16> {};

// Rows and tokens beyond the last one are the last one: nobody stores what comes of them.
__device__ __forceinline__ const std::byte* row_or_last(const Matrix& matrix, std::int64_t row) {
  return row_at(matrix, row < matrix.rows ? row : matrix.rows - 1);
}
__device__ __forceinline__ const std::byte* token_or_last(const LinearCall& call, std::int64_t token) {
  return token_of<const std::byte>(call.x, token < call.tokens ? token : call.tokens - 1);
}

// How many groups of eight tokens there are from `first` on, of kMost.
template <int kMost>
__device__ __forceinline__ int token_groups(const LinearCall& call, std::int64_t first) {
  const std::int64_t groups = (call.tokens - first + 7) / 8;
  return groups < 0 ? 0 : groups < kMost ? static_cast<int>(groups) : kMost;
}

}  // namespace backplane::cuda
