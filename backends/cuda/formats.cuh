// Weights, eight columns at a time. The expressions are the reference's.
#pragma once

#include "backends/cuda/common.cuh"

namespace backplane::cuda {

// Eight bytes of a row. Blocks begin at even addresses at least.
struct Eight {
  std::uint32_t low, high;
  __device__ __forceinline__ int operator[](int i) const {
    return static_cast<int>((i < 4 ? low : high) >> (i % 4 * 8) & 0xff);
  }
};

__device__ __forceinline__ std::uint32_t load_16(const std::uint8_t* p) {
  return cu::ld_global(reinterpret_cast<const std::uint16_t*>(p));
}
__device__ __forceinline__ std::uint32_t load_32(const std::uint8_t* p) { return load_16(p) | load_16(p + 2) << 16; }
__device__ __forceinline__ Eight load_eight(const std::uint8_t* p) { return {load_32(p), load_32(p + 4)}; }
// The same where the address is a multiple of eight.
__device__ __forceinline__ Eight load_aligned(const std::uint8_t* p) {
  const uint2 both = cu::ld_global(reinterpret_cast<const uint2*>(p));
  return {both.x, both.y};
}
__device__ __forceinline__ float load_half(const std::uint8_t* p) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(load_16(p))));
}

struct ScaleAndMinimum {
  float scale, minimum;
};

// Q4_K and Q5_K pack eight pairs of six bits into twelve bytes, after d and dmin.
__device__ __forceinline__ ScaleAndMinimum packed_scale(const std::uint8_t* block, int group) {
  const std::uint8_t* packed = block + 4;
  int scale, minimum;
  if (group < 4) {
    scale = cu::ld_global(packed + group) & 63;
    minimum = cu::ld_global(packed + group + 4) & 63;
  } else {
    const int both = cu::ld_global(packed + group + 4);
    scale = (both & 15) | (cu::ld_global(packed + group - 4) >> 6) << 4;
    minimum = both >> 4 | (cu::ld_global(packed + group) >> 6) << 4;
  }
  return {load_half(block) * static_cast<float>(scale), load_half(block + 2) * static_cast<float>(minimum)};
}

__device__ __forceinline__ const std::uint8_t* block_of(const Matrix& matrix, std::int64_t row, std::int64_t number,
                                                        int bytes) {
  return reinterpret_cast<const std::uint8_t*>(matrix.data + row * matrix.pitch) + number * bytes;
}

// Columns [8 * oct, 8 * oct + 8) of a row to w; what lies beyond the row's columns is 0.
template <bp_type kType>
struct Format;

template <class T>
struct FloatFormat {
  static __device__ __forceinline__ void decode(const Matrix& matrix, std::int64_t row, std::int64_t oct, float* w) {
    const std::byte* start = matrix.data + row * matrix.pitch + oct * 8 * matrix.step;
    const T* at = reinterpret_cast<const T*>(start);
    const bool whole = oct * 8 + 8 <= matrix.columns && matrix.step == sizeof(T);
    if (whole && reinterpret_cast<std::uintptr_t>(at) % 16 == 0) {
      constexpr int kLoads = sizeof(T) / 2, kEach = 8 / kLoads;
#pragma unroll
      for (int load = 0; load < kLoads; ++load) {
        struct alignas(16) Vector {
          T value[kEach];
        };
        const uint4 bits = cu::ld_global(reinterpret_cast<const uint4*>(at) + load);
        Vector vector;
        memcpy(static_cast<void*>(&vector), &bits, sizeof(bits));
#pragma unroll
        for (int i = 0; i < kEach; ++i) w[load * kEach + i] = to_float(vector.value[i]);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const T* element = reinterpret_cast<const T*>(start + i * matrix.step);
      w[i] = oct * 8 + i < matrix.columns ? to_float(cu::ld_global(element)) : 0.0f;
    }
  }
};
template <>
struct Format<BP_TYPE_F32> : FloatFormat<float> {};
template <>
struct Format<BP_TYPE_F16> : FloatFormat<__half> {};
template <>
struct Format<BP_TYPE_BF16> : FloatFormat<__nv_bfloat16> {};

// Blocks of 32: the low nibbles are values 0 to 15, the high ones 16 to 31; the fifth bits lie in a word of their own.
template <int kBytes, bool kMinimum, bool kFive>
struct NibbleFormat {
  static __device__ __forceinline__ void decode(const Matrix& matrix, std::int64_t row, std::int64_t oct, float* w) {
    const std::uint8_t* block = block_of(matrix, row, oct / 4, kBytes);
    const int part = static_cast<int>(oct % 4);
    const std::uint8_t* high = block + (kMinimum ? 4 : 2);
    const float d = load_half(block), m = kMinimum ? load_half(block + 2) : 0.0f;
    const std::uint32_t fifth = kFive ? load_32(high) >> (part * 8) : 0;
    const Eight q = load_eight(high + (kFive ? 4 : 0) + part % 2 * 8);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int value = (q[i] >> (part / 2 * 4) & 15) | static_cast<int>(fifth >> i & 1) << 4;
      if constexpr (kMinimum) {
        w[i] = d * static_cast<float>(value) + m;
      } else {
        w[i] = d * static_cast<float>(value - (kFive ? 16 : 8));
      }
    }
  }
};
template <>
struct Format<BP_TYPE_Q4_0> : NibbleFormat<18, false, false> {};
template <>
struct Format<BP_TYPE_Q4_1> : NibbleFormat<20, true, false> {};
template <>
struct Format<BP_TYPE_Q5_0> : NibbleFormat<22, false, true> {};
template <>
struct Format<BP_TYPE_Q5_1> : NibbleFormat<24, true, true> {};

template <>
struct Format<BP_TYPE_Q8_0> {
  static __device__ __forceinline__ void decode(const Matrix& matrix, std::int64_t row, std::int64_t oct, float* w) {
    const std::uint8_t* block = block_of(matrix, row, oct / 4, 34);
    const float d = load_half(block);
    const Eight q = load_eight(block + 2 + oct % 4 * 8);
#pragma unroll
    for (int i = 0; i < 8; ++i) w[i] = d * static_cast<float>(static_cast<std::int8_t>(q[i]));
  }
};

// Blocks of 256.
template <int kBytes, bool kFive>
struct GroupFormat {
  static __device__ __forceinline__ void decode(const Matrix& matrix, std::int64_t row, std::int64_t oct, float* w) {
    const std::uint8_t* block = block_of(matrix, row, oct / 32, kBytes);
    const int group = static_cast<int>(oct % 32) / 4, part = static_cast<int>(oct % 4);
    const auto [scale, minimum] = packed_scale(block, group);
    const Eight q = load_aligned(block + (kFive ? 48 : 16) + group / 2 * 32 + part * 8);
    const Eight fifth = kFive ? load_aligned(block + 16 + part * 8) : Eight{0, 0};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int value = (q[i] >> (group % 2 * 4) & 15) | (fifth[i] >> group & 1) << 4;
      w[i] = scale * static_cast<float>(value) - minimum;
    }
  }
};
template <>
struct Format<BP_TYPE_Q4_K> : GroupFormat<144, false> {};
template <>
struct Format<BP_TYPE_Q5_K> : GroupFormat<176, true> {};

template <>
struct Format<BP_TYPE_Q6_K> {
  static __device__ __forceinline__ void decode(const Matrix& matrix, std::int64_t row, std::int64_t oct, float* w) {
    const std::uint8_t* block = block_of(matrix, row, oct / 32, 210);
    const int inside = static_cast<int>(oct % 32), group = inside / 2, half = group / 8, part = group % 8 / 2;
    const int start = group % 2 * 16 + inside % 2 * 8;
    const float scale =
        load_half(block + 208) * static_cast<float>(static_cast<std::int8_t>(cu::ld_global(block + 192 + group)));
    const Eight low = load_eight(block + half * 64 + part % 2 * 32 + start);
    const Eight high = load_eight(block + 128 + half * 32 + start);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int value = (low[i] >> (part / 2 * 4) & 15) | (high[i] >> (part * 2) & 3) << 4;
      w[i] = scale * static_cast<float>(value - 32);
    }
  }
};

// Calls visit.template operator()<type>() for the matrix's type; what isn't one of the kernels' is an error.
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
