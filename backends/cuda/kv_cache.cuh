// Elements of a KV cache, eight at a time: how they are read as floats and how a head is stored. A token of one head of
// a page lies at a place (place_of), from which CacheSide says the rest.
#pragma once

#include "backends/cuda/four.cuh"

namespace backplane::cuda {

// Where a head has token `offset` of a page.
__device__ __forceinline__ std::int64_t place_of(const CacheView& cache, std::int64_t page, std::int64_t head,
                                                 std::int64_t offset) {
  return (page * cache.heads + head) * cache.page_size + offset;
}

// A head of up to 256 elements in a warp, as floats: lane l has [8 l, 8 l + 8), for which lanes exchange what they have
// loaded or will store, [4 l, 4 l + 4) and the same from element 128 on, so that their 16 bytes follow each other.
__device__ __forceinline__ void to_eight(const float4 (&four)[2], float* eight) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const auto part = [&](const float4& x) { return i % 4 == 0 ? x.x : i % 4 == 1 ? x.y : i % 4 == 2 ? x.z : x.w; };
    const int source = (2 * lane + i / 4) % 32;
    const float low = __shfl_sync(0xffffffffu, part(four[0]), source);
    const float high = __shfl_sync(0xffffffffu, part(four[1]), source);
    eight[i] = lane < 16 ? low : high;
  }
}
__device__ __forceinline__ void to_four(const float* eight, float4 (&four)[2]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float even = __shfl_sync(0xffffffffu, eight[i], 16 * n + lane / 2);
      const float odd = __shfl_sync(0xffffffffu, eight[4 + i], 16 * n + lane / 2);
      x[i] = lane % 2 == 0 ? even : odd;
    }
    four[n] = {x[0], x[1], x[2], x[3]};
  }
}

// A lane's elements of a head in activations or parameters, by a whole warp; zeros from `dim` on.
template <class A>
__device__ __forceinline__ void load_head(const A* x, std::int64_t dim, float* eight) {
  const int lane = static_cast<int>(threadIdx.x % 32), first = lane * 8;
  if constexpr (sizeof(A) == 4) {
    const float4 four[2] = {load_four(x, lane * 4, dim), load_four(x, 128 + lane * 4, dim)};
    to_eight(four, eight);
  } else if (first + 8 <= dim && reinterpret_cast<std::uintptr_t>(x) % 16 == 0) {
    const uint4 bits = cu::ld_global(reinterpret_cast<const uint4*>(x + first));
    A values[8];
    memcpy(static_cast<void*>(values), &bits, sizeof(bits));
#pragma unroll
    for (int i = 0; i < 8; ++i) eight[i] = to_float(values[i]);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) eight[i] = first + i < dim ? to_float(cu::ld_global(x + first + i)) : 0.0f;
  }
}

// The way back, up to `dim`.
template <class A>
__device__ __forceinline__ void store_head(A* to, std::int64_t dim, const float* eight) {
  const int lane = static_cast<int>(threadIdx.x % 32), first = lane * 8;
  if constexpr (sizeof(A) == 4) {
    float4 four[2];
    to_four(eight, four);
    store_four(to, lane * 4, dim, four[0]);
    store_four(to, 128 + lane * 4, dim, four[1]);
  } else if (first + 8 <= dim && reinterpret_cast<std::uintptr_t>(to) % 16 == 0) {
    A values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = from_float<A>(eight[i]);
    uint4 bits;
    memcpy(&bits, static_cast<const void*>(values), sizeof(bits));
    cu::st_global(reinterpret_cast<uint4*>(to + first), bits);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (first + i < dim) cu::st_global(to + first + i, from_float<A>(eight[i]));
    }
  }
}

// One type's elements:
//   Raw      eight of them as they are stored. Reading and expanding are apart, so that many reads can be on their way.
//   fetch    those at [first, first + 4) and [second, second + 4), both multiples of four. They are neighbors (second
//   is
//            first + 4, first a multiple of eight) but in F32, where lanes that share a sector may want it otherwise.
//            `first` is less than `pitch`; what isn't is zero
//   expand   to floats; what lies between `dim` and `pitch` is zero
//   store    a head, by a whole warp: lane l brings the elements [8 l, 8 l + 8), zeros from `dim` on
template <bp_type kType>
struct Cached;

template <class T>
struct CachedFloat {
  using Element = T;
  static constexpr int kLoads = static_cast<int>(sizeof(T)) / 2;
  struct Raw {
    uint4 part[kLoads];
  };

  static __device__ __forceinline__ Raw fetch(const CacheSide& side, std::int64_t place, int first, int second) {
    const T* row = reinterpret_cast<const T*>(side.data) + place * side.pitch;
    Raw raw;
    raw.part[0] = cu::ld_global(reinterpret_cast<const uint4*>(row + first));
    if constexpr (kLoads == 2) {
      raw.part[1] =
          second < side.pitch ? cu::ld_global(reinterpret_cast<const uint4*>(row + second)) : uint4{0, 0, 0, 0};
    }
    return raw;
  }

  static __device__ __forceinline__ void expand(const Raw& raw, float* to) {
    T values[8];
    memcpy(static_cast<void*>(values), &raw, sizeof(raw));
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = to_float(values[i]);
  }

  static __device__ __forceinline__ void store(const CacheSide& side, std::int64_t place, const float* eight) {
    store_head(reinterpret_cast<T*>(side.data) + place * side.pitch, side.pitch, eight);
  }
};
template <>
struct Cached<BP_TYPE_F32> : CachedFloat<float> {};
template <>
struct Cached<BP_TYPE_F16> : CachedFloat<__half> {};
template <>
struct Cached<BP_TYPE_BF16> : CachedFloat<__nv_bfloat16> {};

// E4M3 as its bits. Finite numbers beyond 448 become 448: in a cache, a NaN would be the end of the sequence.
// What isn't finite becomes NaN.
__device__ __forceinline__ std::uint32_t to_e4m3(float x) {
  const std::uint32_t bits = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
  return (__float_as_uint(x) & 0x7fffffffu) < 0x7f800000u ? bits : 0x7fu;
}

// Two of them, the lower bytes of `pair`.
__device__ __forceinline__ float2 from_e4m3(std::uint32_t pair) {
#if !defined(BACKPLANE_CUDA_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), __NV_E4M3)));
#else
  // As the bits of a half, of whose exponent they lack 8; 480 is what NaN looks like.
  const std::uint32_t spread = __byte_perm(pair, 0, 0x1404);
  const std::uint32_t bits = (spread & 0x80008000u) | (spread & 0x7f007f00u) >> 1;
  __half2 halves;
  memcpy(static_cast<void*>(&halves), &bits, sizeof(bits));
  float2 both = __half22float2(halves);
  both.x *= 256.0f;
  both.y *= 256.0f;
  if (fabsf(both.x) == 480.0f) both.x = NAN;
  if (fabsf(both.y) == 480.0f) both.y = NAN;
  return both;
#endif
}

template <>
struct Cached<BP_TYPE_F8_E4M3> {
  using Raw = uint2;

  static __device__ __forceinline__ Raw fetch(const CacheSide& side, std::int64_t place, int first, int) {
    return cu::ld_global(reinterpret_cast<const uint2*>(side.data + place * side.pitch + first));
  }

  static __device__ __forceinline__ void expand(const Raw& raw, float* to) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t word = i < 2 ? raw.x : raw.y;
      const float2 both = from_e4m3(word >> (i % 2 * 16) & 0xffffu);
      to[2 * i] = both.x;
      to[2 * i + 1] = both.y;
    }
  }

  static __device__ __forceinline__ void store(const CacheSide& side, std::int64_t place, const float* eight) {
    const int first = static_cast<int>(threadIdx.x % 32) * 8;
    if (first >= side.pitch) return;
    uint2 bits{0, 0};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      bits.x |= to_e4m3(eight[i]) << (8 * i);
      bits.y |= to_e4m3(eight[4 + i]) << (8 * i);
    }
    cu::st_global(reinterpret_cast<uint2*>(side.data + place * side.pitch + first), bits);
  }
};

// Rounded as GGUF's reference does it, in float: by the block's largest magnitude, halves away from zero. NaN and
// infinity make a block NaN; one too small for its scale is zeros.
template <>
struct Cached<BP_TYPE_Q8_0> {
  struct Raw {
    uint2 quants;
    __half scale;
  };

  static __device__ __forceinline__ const __half* scale_at(const CacheSide& side, std::int64_t place, int first) {
    return reinterpret_cast<const __half*>(side.scales) + place * (side.pitch / 32) + first / 32;
  }

  static __device__ __forceinline__ Raw fetch(const CacheSide& side, std::int64_t place, int first, int) {
    Raw raw;
    raw.quants = cu::ld_global(reinterpret_cast<const uint2*>(side.data + place * side.pitch + first));
    raw.scale = cu::ld_global(scale_at(side, place, CU_FAULT("kv.block_scale") ? 0 : first));
    return raw;
  }

  // A byte plus 128 in the mantissa of 2^23: a permutation and a subtraction, where a conversion takes four turns.
  static __device__ __forceinline__ void expand(const Raw& raw, float* to) {
    const float scale = __half2float(raw.scale);
    const std::uint32_t low = raw.quants.x ^ 0x80808080u, high = raw.quants.y ^ 0x80808080u;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t bits = __byte_perm(i < 4 ? low : high, 0x4b000000u, 0x7540u + i % 4);
      to[i] = scale * (__uint_as_float(bits) - 8388736.0f);
    }
  }

  static __device__ __forceinline__ void store(const CacheSide& side, std::int64_t place, const float* eight) {
    const int lane = static_cast<int>(threadIdx.x % 32), first = lane * 8;
    std::uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) largest = max(largest, __float_as_uint(eight[i]) & 0x7fffffffu);
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    if (first >= side.pitch) return;
    const bool finite = largest < 0x7f800000u;
    const float d = finite ? __uint_as_float(largest) / 127.0f : NAN;
    const __half scale = __float2half_rn(d);
    const float inverse = finite && __half2float(scale) != 0.0f ? 1.0f / d : 0.0f;
    uint2 quants{0, 0};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float scaled = inverse == 0.0f ? 0.0f : eight[i] * inverse;
      const auto byte = static_cast<std::uint32_t>(static_cast<int>(roundf(scaled))) & 0xffu;
      (i < 4 ? quants.x : quants.y) |= byte << (i % 4 * 8);
    }
    cu::st_global(reinterpret_cast<uint2*>(side.data + place * side.pitch + first), quants);
    const __half stored = finite ? scale : __ushort_as_half(0x7e00);
    if (lane % 4 == 0) cu::st_global(const_cast<__half*>(scale_at(side, place, first)), stored);
  }
};

// Calls visit.template operator()<type>() for the cache's type; one that no cache has is an error.
template <class Visit>
cudaError_t visit_cache(bp_type type, Visit&& visit) {
  switch (type) {
    case BP_TYPE_F32:
      return visit.template operator()<BP_TYPE_F32>();
    case BP_TYPE_F16:
      return visit.template operator()<BP_TYPE_F16>();
    case BP_TYPE_BF16:
      return visit.template operator()<BP_TYPE_BF16>();
    case BP_TYPE_F8_E4M3:
      return visit.template operator()<BP_TYPE_F8_E4M3>();
    case BP_TYPE_Q8_0:
      return visit.template operator()<BP_TYPE_Q8_0>();
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace backplane::cuda
