// Weights of every format, as `layout.h` has them. A format is
//
//   kColumns   columns that a lane takes at once: the fewest for which it loads 16 bytes that follow its neighbors'
//   kAhead     how many of these it should have on their way at once, beside those of other rows
//   kSpan      how many columns share a scale; 0: there are none
//   kCenter    how much more `part` says than kUnitOfValues times a quantized weight's value, before its scale
//   kAddend    whether a span's sum of activations, times Scale::addend, belongs to the result
//   kSteps     bytes from a lane's columns to those 32 lanes further, in each plane
//   planes     where a row's columns from number * kColumns on are
//   Raw        these columns' bytes, from load(planes, chunk): `chunk` times 32 lanes further
//   clear      makes of a Raw whose bytes are whatever they were one that adds nothing where activations are 0
//   scale      what the sums of its spans are to be multiplied with, from a Raw
//   part       four of the columns as floats, from a Raw
//   decode     eight columns of a row, with the reference's expressions; what lies beyond the row's columns is 0
//
// Quantized formats also have
//
//   kUnitOfValues  a power of two; `scale` has divided by it what values are multiplied with
//   Scales         how a unit's lie: kSpan as above; kStep and kLastStep, bytes for 32 units in the planes of scales
//                  and of the large ones; offset, where a unit's begin; Raw, load and scale, this not divided
//
// and floats, whose rows needn't lie as vectors can be read,
//
//   gather     a Raw of columns that are read one by one; what lies beyond the row's columns is 0
//   four       four columns of a row, wherever they lie; what lies beyond the row's columns is 0
//
// On tensor cores, RawWeights (linear_mma.cuh) reads quants by itself and fills a Raw for `part`: its member `first`
// where there are eight bits, else `quants` and `high`.
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

// Where a lane's columns of a row are in each of its planes, from planes(matrix, row, number).
struct Planes {
  const std::byte *quants, *second, *scales, *last;
};
template <class F>
__device__ __forceinline__ void advance(Planes& planes, int chunks) {
  planes.quants += chunks * F::kSteps.quants;
  planes.second += chunks * F::kSteps.second;
  planes.scales += chunks * F::kSteps.scales;
  planes.last += chunks * F::kSteps.last;
}

struct PlaneSteps {
  int quants = 512, second = 0, scales = 0, last = 0;
};

// Of the first and the second half of a unit's columns: value * factor + addend.
struct Scale {
  float first, second, addend;
};

// ---- Floats

// They stay as they were read until they are multiplied: whatever happens to them before waits for them.
template <class T>
struct FloatFormat {
  static constexpr int kColumns = 16 / sizeof(T), kAhead = 4, kSpan = 0, kCenter = 0;
  static constexpr bool kAddend = false;
  static constexpr PlaneSteps kSteps{};
  using Raw = uint4;

  static __device__ __forceinline__ Planes planes(const Matrix&, const std::byte* row, int number) {
    const std::byte* at = row + std::int64_t{number} * 16;
    return {at, at, at, at};
  }
  static __device__ __forceinline__ void load(const Planes& at, int chunk, Raw& raw) {
    raw = load_at<uint4>(at.quants + chunk * kSteps.quants, 0);
  }
  static __device__ __forceinline__ void clear(Raw& raw) { raw = {}; }

  // For rows that don't lie as vectors can be read. Beyond the columns: 0.
  static __device__ __forceinline__ Raw gather(const Matrix& matrix, const std::byte* row, std::int64_t first) {
    T values[kColumns];
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const bool inside = first + i < matrix.columns;
      values[i] = inside ? load_at<T>(row + (first + i) * matrix.step, 0) : from_float<T>(0.0f);
    }
    Raw raw;
    memcpy(&raw, static_cast<const void*>(values), sizeof(raw));
    return raw;
  }
  static __device__ __forceinline__ void part(const Raw& raw, int part, float* w) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int bytes = (part * 4 + i) * static_cast<int>(sizeof(T));
      const std::uint32_t word = word_of(raw, bytes / 4);
      if constexpr (sizeof(T) == 4) {
        w[i] = __uint_as_float(word);
      } else if constexpr (std::is_same_v<T, __half>) {
        w[i] = half_of(bytes % 4 == 0 ? word : word >> 16);
      } else {
        w[i] = __uint_as_float(bytes % 4 == 0 ? word << 16 : word & 0xffff0000u);
      }
    }
  }
  static __device__ __forceinline__ void decode(const Matrix& matrix, std::int64_t row, std::int64_t oct, float* w) {
    const std::byte* from = row_at(matrix, row);
#pragma unroll
    for (int load_number = 0; load_number < 8 / kColumns; ++load_number) {
      const std::int64_t first = oct * 8 + load_number * kColumns;
      Raw raw{};
      if (!matrix.vectors) {
        raw = gather(matrix, from, first);
      } else if (first < matrix.columns) {
        raw = load_at<uint4>(from, first / kColumns);
      }
#pragma unroll
      for (int i = 0; i < kColumns; i += 4) part(raw, i / 4, w + load_number * kColumns + i);
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

// A unit's, from where `offset` says that they begin in their plane.

struct HalfScale {  // a half for each unit
  using Raw = std::uint32_t;
  static constexpr int kStep = 64, kLastStep = 0, kSpan = 32;  // bytes for 32 units in both planes; columns
  static __device__ __forceinline__ int offset(int unit) { return unit * 2; }
  static __device__ __forceinline__ Raw load(const std::byte* scales, const std::byte*) {
    return load_at<std::uint16_t>(scales, 0);
  }
  static __device__ __forceinline__ Scale scale(Raw raw, int) {
    const float d = half_of(raw);
    return {d, d, 0.0f};
  }
};

struct HalfScaleAndMinimum {
  using Raw = std::uint32_t;
  static constexpr int kStep = 128, kLastStep = 0, kSpan = 32;
  static __device__ __forceinline__ int offset(int unit) { return unit * 4; }
  static __device__ __forceinline__ Raw load(const std::byte* scales, const std::byte*) {
    return load_at<std::uint32_t>(scales, 0);
  }
  static __device__ __forceinline__ Scale scale(Raw raw, int) {
    const float d = half_of(raw);
    return {d, d, CU_FAULT("formats.forgotten_minimum") ? 0.0f : half_of(raw >> 16)};
  }
};

// Q4_K and Q5_K: two halves, then eight pairs of six bits in twelve bytes, for eight units. The first four pairs are
// whole bytes' lower bits; of the others, the lower four bits are in the last four bytes, the rest above the first.
struct PackedScales {
  using Raw = uint4;
  static constexpr int kStep = 64, kLastStep = 0, kSpan = 32;
  static __device__ __forceinline__ int offset(int unit) { return unit / 8 * 16; }
  static __device__ __forceinline__ Raw load(const std::byte* scales, const std::byte*) {
    return load_at<uint4>(scales, 0);
  }
  static __device__ __forceinline__ Scale scale(const Raw& raw, int unit) {
    const bool upper = unit % 8 >= 4 && !CU_FAULT("formats.upper_scales");
    const int shift = unit % 4 * 8, first_shift = upper ? shift + 2 : shift;
    const std::uint32_t first_mask = upper ? 0x30 : 0x3f, last_mask = upper ? 0x0f : 0;
    const std::uint32_t scale = (raw.y >> first_shift & first_mask) | (raw.w >> shift & last_mask);
    const std::uint32_t minimum = (raw.z >> first_shift & first_mask) | (raw.w >> (shift + 4) & last_mask);
    const float factor = half_of(raw.x) * static_cast<float>(scale);
    return {factor, factor, -(half_of(raw.x >> 16) * static_cast<float>(minimum))};
  }
};

// Q6_K: a signed byte for 16 columns, a half for 256.
struct SignedScales {
  struct Raw {
    std::uint32_t small, large;  // apart: whatever puts them together waits for both
  };
  static constexpr int kStep = 64, kLastStep = 8, kSpan = 16;
  static __device__ __forceinline__ int offset(int unit) { return unit * 2; }
  static __device__ __forceinline__ Raw load(const std::byte* scales, const std::byte* last) {
    return {load_at<std::uint16_t>(scales, 0), load_at<std::uint16_t>(last, 0)};
  }
  static __device__ __forceinline__ Scale scale(const Raw& raw, int) {
    const float d = half_of(raw.large);
    return {d * static_cast<float>(static_cast<std::int8_t>(raw.small & 0xff)),
            d * static_cast<float>(static_cast<std::int8_t>(raw.small >> 8 & 0xff)), 0.0f};
  }
};

// ---- Four bits in one plane, up to two more in another

// Values become floats without a conversion, which a GPU does at a fraction of its other rates. The bits of four
// columns are moved together, to below the top of four bytes; each byte then becomes the second one of a float from 32
// to 64. There a value counts for 2^(1 - kHigh), and the float is 32 more, or kCenter with what the value's zero is.
template <int kHigh, class S, int kZero, bool kMinimum>
struct NibbleFormat {
  using Scales = S;
  static constexpr int kColumns = kUnit, kAhead = 2, kSpan = S::kSpan;
  static constexpr float kUnitOfValues = kHigh == 0 ? 2.0f : kHigh == 1 ? 1.0f : 0.5f;
  static constexpr int kCenter = 32 + static_cast<int>(static_cast<float>(kZero) * kUnitOfValues);
  static constexpr bool kAddend = kMinimum;
  static constexpr PlaneSteps kSteps{512, 128 * kHigh, S::kStep, S::kLastStep};
  struct Raw {
    uint4 quants;
    std::uint32_t high[kHigh == 0 ? 1 : kHigh];
    typename S::Raw scale;
  };

  static __device__ __forceinline__ Planes planes(const Matrix& matrix, const std::byte* row, int unit) {
    return {row + std::int64_t{unit} * 16, row + matrix.second + std::int64_t{unit} * (4 * kHigh),
            row + matrix.scales + S::offset(unit), row + matrix.last + unit / 8 * 2};
  }
  static __device__ __forceinline__ void load(const Planes& at, int chunk, Raw& raw) {
    raw.quants = load_at<uint4>(at.quants + chunk * kSteps.quants, 0);
    const std::byte* second = at.second + chunk * kSteps.second;
    if constexpr (kHigh == 1) raw.high[0] = load_at<std::uint32_t>(second, 0);
    if constexpr (kHigh == 2) {
      const uint2 both = load_at<uint2>(second, 0);
      raw.high[0] = both.x;
      raw.high[1] = both.y;
    }
    raw.scale = S::load(at.scales + chunk * kSteps.scales, at.last + chunk * kSteps.last);
  }
  static __device__ __forceinline__ void clear(Raw& raw) { raw.scale = {}; }

  static __device__ __forceinline__ Scale scale(const Raw& raw, int unit) {
    const Scale scale = S::scale(raw.scale, unit);
    constexpr float kEach = 1.0f / kUnitOfValues;
    return {scale.first * kEach, scale.second * kEach, scale.addend};
  }

  static __device__ __forceinline__ void part(const Raw& raw, int part, float* w) {
    const int word = part % 4, upper = part / 4;
    const auto moved = [](std::uint32_t bits, int up) { return up < 0 ? bits >> -up : bits << up; };
    std::uint32_t bytes = moved(word_of(raw.quants, word), 3 - kHigh - 4 * upper) & 0x0f0f0f0fu << (3 - kHigh);
    if constexpr (kHigh > 0) {
      const int from = 4 * upper + (CU_FAULT("formats.high_bits") ? 0 : kHigh * (word % (4 / kHigh)));
      const std::uint32_t high = kHigh == 1 || word < 2 ? raw.high[0] : raw.high[kHigh - 1];
      bytes |= moved(high, 7 - kHigh - from) & (kHigh == 1 ? 0x40404040u : 0x60606060u);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      w[i] = __uint_as_float(__byte_perm(bytes, 0x42000000u, 0x7044u + (static_cast<unsigned>(i) << 8)));
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
    const Scale scales =
        S::scale(S::load(from + matrix.scales + S::offset(unit), from + matrix.last + unit / 8 * 2), unit);
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
  using Scales = HalfScale;
  static constexpr int kColumns = kUnit, kAhead = 2, kSpan = kUnit, kCenter = 0;
  static constexpr float kUnitOfValues = 1.0f;
  static constexpr bool kAddend = false;
  static constexpr PlaneSteps kSteps{512, 512, HalfScale::kStep, 0};
  struct Raw {
    uint4 first, second;
    std::uint32_t scale;
  };
  static __device__ __forceinline__ Planes planes(const Matrix& matrix, const std::byte* row, int unit) {
    const std::byte *first = row + std::int64_t{unit} * 16, *scales = row + matrix.scales + HalfScale::offset(unit);
    return {first, first + matrix.second, scales, scales};
  }
  static __device__ __forceinline__ void load(const Planes& at, int chunk, Raw& raw) {
    raw.first = load_at<uint4>(at.quants + chunk * kSteps.quants, 0);
    raw.second = load_at<uint4>(at.second + chunk * kSteps.second, 0);
    raw.scale = HalfScale::load(at.scales + chunk * kSteps.scales, nullptr);
  }
  static __device__ __forceinline__ void clear(Raw& raw) { raw.scale = 0; }
  static __device__ __forceinline__ Scale scale(const Raw& raw, int unit) { return HalfScale::scale(raw.scale, unit); }

  // A byte below the first one of 2^23 is a float again, exact like the difference.
  static __device__ __forceinline__ void part(const Raw& raw, int part, float* w) {
    const std::uint32_t word = part < 4 ? word_of(raw.first, part) : word_of(raw.second, part - 4);
    const std::uint32_t bytes = word ^ 0x80808080u;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float biased = __uint_as_float(__byte_perm(bytes, 0x4b000000u, 0x7550u + static_cast<unsigned>(i)));
      w[i] = biased - (8388608.0f + 128.0f);
    }
  }
  static __device__ __forceinline__ void decode(const Matrix& matrix, std::int64_t row, std::int64_t oct, float* w) {
    const std::byte* from = row_at(matrix, row);
    const int unit = static_cast<int>(oct / 4), number = static_cast<int>(oct % 4);
    const uint2 quants = load_at<uint2>(from + (number < 2 ? 0 : matrix.second), unit * 2 + number % 2);
    const float d = half_of(HalfScale::load(from + matrix.scales + HalfScale::offset(unit), nullptr));
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
