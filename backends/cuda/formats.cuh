// Weights of every format, as `layout.h` has them. A format is
//
//   kColumns   columns that a lane takes at once: the fewest for which it loads 16 bytes that follow its neighbors'
//   kBatch     how many of these it should have on their way at once, beside those of other rows
//   Raw        these columns' bytes, from load(matrix, row, number)
//   Scale      what their values are to be multiplied with and added to, from scale(raw, number)
//   part       four of the columns as floats, from a Raw and its Scale
//   decode     eight columns of a row, with the reference's expressions; what lies beyond the row's columns is 0
#pragma once

#include "backends/cuda/four.cuh"
#include "backends/cuda/layout.h"

namespace backplane::cuda {

template <bp_type kType>
struct Format;

__device__ __forceinline__ const std::byte* row_at(const Matrix& matrix, std::int64_t row) {
  return matrix.data + row * matrix.pitch;
}
template <class T>
__device__ __forceinline__ T load_at(const std::byte* from, std::int64_t number) {
  return cu::ld_global(reinterpret_cast<const T*>(from) + number);
}
__device__ __forceinline__ float half_of(std::uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits & 0xffff)));
}
__device__ __forceinline__ std::uint32_t word_of(const uint4& words, int number) {
  return number == 0 ? words.x : number == 1 ? words.y : number == 2 ? words.z : words.w;
}

// ---- Floats

template <class T>
struct FloatFormat {
  static constexpr int kColumns = 16 / sizeof(T), kBatch = 2;
  struct alignas(16) Raw {
    T value[kColumns];
  };
  struct Scale {};

  // Rows that don't lie as vectors can be read, and the columns after the last whole vector, go one by one.
  static __device__ __forceinline__ Raw load(const Matrix& matrix, const std::byte* row, int number) {
    Raw raw;
    const std::int64_t first = std::int64_t{number} * kColumns;
    if (matrix.vectors && first + kColumns <= matrix.columns) {
      const uint4 bits = load_at<uint4>(row, number);
      memcpy(static_cast<void*>(&raw), &bits, sizeof(bits));
      return raw;
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const bool inside = first + i < matrix.columns;
      raw.value[i] = inside ? load_at<T>(row + (first + i) * matrix.step, 0) : from_float<T>(0.0f);
    }
    return raw;
  }
  static __device__ __forceinline__ Scale scale(const Raw&, int) { return {}; }
  static __device__ __forceinline__ void part(const Raw& raw, const Scale&, int part, float* w) {
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = to_float(raw.value[part * 4 + i]);
  }
  static __device__ __forceinline__ void decode(const Matrix& matrix, std::int64_t row, std::int64_t oct, float* w) {
#pragma unroll
    for (int load_number = 0; load_number < 8 / kColumns; ++load_number) {
      const Raw raw = load(matrix, row_at(matrix, row), static_cast<int>(oct) * (8 / kColumns) + load_number);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) w[load_number * kColumns + i] = to_float(raw.value[i]);
    }
  }
  static __device__ __forceinline__ float4 four(const Matrix& matrix, std::int64_t row, std::int64_t column) {
    const std::byte* from = row_at(matrix, row);
    if (matrix.step == sizeof(T)) return load_four(reinterpret_cast<const T*>(from), column, matrix.columns);
    float w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool inside = column + i < matrix.columns;
      w[i] = inside ? to_float(load_at<T>(from + (column + i) * matrix.step, 0)) : 0.0f;
    }
    return {w[0], w[1], w[2], w[3]};
  }
};
template <>
struct Format<BP_TYPE_F32> : FloatFormat<float> {};
template <>
struct Format<BP_TYPE_F16> : FloatFormat<__half> {};
template <>
struct Format<BP_TYPE_BF16> : FloatFormat<__nv_bfloat16> {};

// ---- Scales

// Of the first and the second half of a unit's columns: value * factor + addend.
struct Scale {
  float first, second, addend;
};

struct HalfScale {  // a half for each unit
  using Raw = std::uint32_t;
  static __device__ __forceinline__ Raw load(const Matrix& matrix, const std::byte* row, int unit) {
    return load_at<std::uint16_t>(row + matrix.scales, unit);
  }
  static __device__ __forceinline__ Scale scale(Raw raw, int) {
    const float d = half_of(raw);
    return {d, d, 0.0f};
  }
};

struct HalfScaleAndMinimum {
  using Raw = std::uint32_t;
  static __device__ __forceinline__ Raw load(const Matrix& matrix, const std::byte* row, int unit) {
    return load_at<std::uint32_t>(row + matrix.scales, unit);
  }
  static __device__ __forceinline__ Scale scale(Raw raw, int) {
    const float d = half_of(raw);
    return {d, d, CU_FAULT("formats.forgotten_minimum") ? 0.0f : half_of(raw >> 16)};
  }
};

// Q4_K and Q5_K: two halves, then eight pairs of six bits in twelve bytes, for eight units.
struct PackedScales {
  using Raw = uint4;
  static __device__ __forceinline__ Raw load(const Matrix& matrix, const std::byte* row, int unit) {
    return load_at<uint4>(row + matrix.scales, unit / 8);
  }
  static __device__ __forceinline__ Scale scale(const Raw& raw, int unit) {
    const int shift = unit % 4 * 8;
    std::uint32_t scale = raw.y >> shift & 63, minimum = raw.z >> shift & 63;
    if (unit % 8 >= 4 && !CU_FAULT("formats.upper_scales")) {
      const std::uint32_t both = raw.w >> shift;
      scale = (both & 15) | (raw.y >> shift >> 6 & 3) << 4;
      minimum = (both >> 4 & 15) | (raw.z >> shift >> 6 & 3) << 4;
    }
    const float factor = half_of(raw.x) * static_cast<float>(scale);
    return {factor, factor, -(half_of(raw.x >> 16) * static_cast<float>(minimum))};
  }
};

// Q6_K: a signed byte for 16 columns, a half for 256.
struct SignedScales {
  using Raw = std::uint32_t;
  static __device__ __forceinline__ Raw load(const Matrix& matrix, const std::byte* row, int unit) {
    const std::uint32_t small = load_at<std::uint16_t>(row + matrix.scales, unit);
    return small | std::uint32_t{load_at<std::uint16_t>(row + matrix.last, unit / 8)} << 16;
  }
  static __device__ __forceinline__ Scale scale(Raw raw, int) {
    const float d = half_of(raw >> 16);
    return {d * static_cast<float>(static_cast<std::int8_t>(raw & 0xff)),
            d * static_cast<float>(static_cast<std::int8_t>(raw >> 8 & 0xff)), 0.0f};
  }
};

// ---- Four bits in one plane, up to two more in another

// Values become floats without a conversion, which a GPU does at a fraction of its other rates: up to seven bits of a
// word at bit 8, 12 or 16 are the low bits of a float that begins with the power of two for which their weight is one.
// Values are kZero more than they mean.
template <int kHigh, class S, int kZero, bool kMinimum>
struct NibbleFormat {
  static constexpr int kColumns = kUnit, kBatch = 1;
  struct Raw {
    uint4 quants;
    std::uint32_t high[kHigh == 0 ? 1 : kHigh];
    typename S::Raw scale;
  };

  static __device__ __forceinline__ Raw load(const Matrix& matrix, const std::byte* row, int unit) {
    Raw raw;
    raw.quants = load_at<uint4>(row, unit);
    if constexpr (kHigh == 1) raw.high[0] = load_at<std::uint32_t>(row + matrix.second, unit);
    if constexpr (kHigh == 2) {
      const uint2 both = load_at<uint2>(row + matrix.second, unit);
      raw.high[0] = both.x;
      raw.high[1] = both.y;
    }
    raw.scale = S::load(matrix, row, unit);
    return raw;
  }
  static __device__ __forceinline__ Scale scale(const Raw& raw, int unit) { return S::scale(raw.scale, unit); }

  static __device__ __forceinline__ void part(const Raw& raw, const Scale& scale, int part, float* w) {
    const float factor = part < 4 ? scale.first : scale.second;
    const int word = part % 4;
    const std::uint32_t bits = word_of(raw.quants, word);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int nibble = 2 * i + part / 4;
      const int up = nibble < 2 ? 8 : nibble < 5 ? 0 : -12, at = 4 * nibble + up;  // 8, 12 or 16
      std::uint32_t value = (up < 0 ? bits >> 12 : bits << up) & 15u << at;
      if constexpr (kHigh > 0) {
        const std::uint32_t high = raw.high[kHigh == 1 ? 0 : word / 2];
        const int high_up = up + 4 - (CU_FAULT("formats.high_bits") ? 0 : kHigh * (word % (4 / kHigh)));
        value |= (high_up < 0 ? high >> -high_up : high << high_up) & ((1u << kHigh) - 1) << (at + 4);
      }
      const float biased = __uint_as_float(value | static_cast<std::uint32_t>(127 + 23 - at) << 23);
      const auto bias = static_cast<float>((1 << (23 - at)) + kZero);
      // The difference is exact. So is the product with a bias of 13 bits at most and a factor of 11, which saves it.
      if constexpr (std::is_same_v<S, HalfScale>) {
        w[i] = fmaf(biased, factor, -(factor * bias));
      } else if constexpr (kMinimum) {
        w[i] = fmaf(biased - bias, factor, scale.addend);
      } else {
        w[i] = (biased - bias) * factor;
      }
    }
  }

  static __device__ __forceinline__ void decode(const Matrix& matrix, std::int64_t row, std::int64_t oct, float* w) {
    const std::byte* from = row_at(matrix, row);
    const int unit = static_cast<int>(oct / 4), number = static_cast<int>(oct % 4), upper = number / 2;
    const uint2 quants = load_at<uint2>(from, unit * 2 + number % 2);
    std::uint32_t high = 0;  // of column i from bit 8 * (i % 4) + kHigh * (i / 4) on
    if constexpr (kHigh == 1) {
      high = load_at<std::uint32_t>(from + matrix.second, unit) >> (4 * upper + 2 * (number % 2));
    } else if constexpr (kHigh == 2) {
      high = load_at<std::uint32_t>(from + matrix.second, unit * 2 + number % 2) >> (4 * upper);
    }
    const Scale scales = S::scale(S::load(matrix, from, unit), unit);
    const float factor = upper == 0 ? scales.first : scales.second;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t low = (i < 4 ? quants.x : quants.y) >> (i % 4 * 8 + 4 * upper) & 15;
      const std::uint32_t more = high >> (8 * (i % 4) + kHigh * (i / 4)) & ((1u << kHigh) - 1);
      const float value = static_cast<float>(static_cast<int>(low | more << 4) - kZero);
      w[i] = kMinimum ? factor * value + scales.addend : factor * value;
    }
  }
};
template <>
struct Format<BP_TYPE_Q4_0> : NibbleFormat<0, HalfScale, 8, false> {};
template <>
struct Format<BP_TYPE_Q4_1> : NibbleFormat<0, HalfScaleAndMinimum, 0, true> {};
template <>
struct Format<BP_TYPE_Q5_0> : NibbleFormat<1, HalfScale, 16, false> {};
template <>
struct Format<BP_TYPE_Q5_1> : NibbleFormat<1, HalfScaleAndMinimum, 0, true> {};
template <>
struct Format<BP_TYPE_Q4_K> : NibbleFormat<0, PackedScales, 0, true> {};
template <>
struct Format<BP_TYPE_Q5_K> : NibbleFormat<1, PackedScales, 0, true> {};
template <>
struct Format<BP_TYPE_Q6_K> : NibbleFormat<2, SignedScales, 32, false> {};

// ---- Bytes

template <>
struct Format<BP_TYPE_Q8_0> {
  static constexpr int kColumns = kUnit, kBatch = 1;
  struct Raw {
    uint4 first, second;
    std::uint32_t scale;
  };
  static __device__ __forceinline__ Raw load(const Matrix& matrix, const std::byte* row, int unit) {
    return {load_at<uint4>(row, unit), load_at<uint4>(row + matrix.second, unit), HalfScale::load(matrix, row, unit)};
  }
  static __device__ __forceinline__ Scale scale(const Raw& raw, int unit) { return HalfScale::scale(raw.scale, unit); }

  // A byte below the first one of 2^23 is a float again, exact like the difference.
  static __device__ __forceinline__ void part(const Raw& raw, const Scale& scale, int part, float* w) {
    const std::uint32_t bytes = word_of(part < 4 ? raw.first : raw.second, part % 4) ^ 0x80808080u;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float biased = __uint_as_float(__byte_perm(bytes, 0x4b000000u, 0x7550u + static_cast<unsigned>(i)));
      w[i] = (biased - (8388608.0f + 128.0f)) * scale.first;
    }
  }
  static __device__ __forceinline__ void decode(const Matrix& matrix, std::int64_t row, std::int64_t oct, float* w) {
    const std::byte* from = row_at(matrix, row);
    const int unit = static_cast<int>(oct / 4), number = static_cast<int>(oct % 4);
    const uint2 quants = load_at<uint2>(from + (number < 2 ? 0 : matrix.second), unit * 2 + number % 2);
    const float d = half_of(HalfScale::load(matrix, from, unit));
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      w[i] = d * static_cast<float>(static_cast<std::int8_t>((i < 4 ? quants.x : quants.y) >> (i % 4 * 8) & 0xff));
    }
  }
};

// Calls `visit` with a type as its template argument.
template <class Visit>
cudaError_t visit_format(bp_type type, Visit&& visit) {
  switch (type) {
    case BP_TYPE_F32:
      return visit.template operator()<BP_TYPE_F32>();
    case BP_TYPE_F16:
      return visit.template operator()<BP_TYPE_F16>();
    case BP_TYPE_BF16:
      return visit.template operator()<BP_TYPE_BF16>();
    case BP_TYPE_Q4_0:
      return visit.template operator()<BP_TYPE_Q4_0>();
    case BP_TYPE_Q4_1:
      return visit.template operator()<BP_TYPE_Q4_1>();
    case BP_TYPE_Q5_0:
      return visit.template operator()<BP_TYPE_Q5_0>();
    case BP_TYPE_Q5_1:
      return visit.template operator()<BP_TYPE_Q5_1>();
    case BP_TYPE_Q8_0:
      return visit.template operator()<BP_TYPE_Q8_0>();
    case BP_TYPE_Q4_K:
      return visit.template operator()<BP_TYPE_Q4_K>();
    case BP_TYPE_Q5_K:
      return visit.template operator()<BP_TYPE_Q5_K>();
    case BP_TYPE_Q6_K:
      return visit.template operator()<BP_TYPE_Q6_K>();
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace backplane::cuda
