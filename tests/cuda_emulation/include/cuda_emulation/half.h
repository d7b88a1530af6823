// Arithmetic of half and bfloat16 that the toolkit's headers offer on devices only. Their host mode has the
// conversions, the operators and the comparisons. Computed in double precision and rounded once.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstring>

#include "cuda_emulation/atomics.h"
#include "cuda_emulation/math.h"

inline __half __hfma(__half a, __half b, __half c) {
  return __double2half(std::fma(double{__half2float(a)}, double{__half2float(b)}, double{__half2float(c)}));
}
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
  return __double2bfloat16(
      std::fma(double{__bfloat162float(a)}, double{__bfloat162float(b)}, double{__bfloat162float(c)}));
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  return __halves2half2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  return __halves2bfloat162(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}

#define CUDA_EMULATION_HALF(name, formula)                                                              \
  inline __half h##name(__half value) {                                                                 \
    const double x = __half2float(value);                                                               \
    return __double2half(formula);                                                                      \
  }                                                                                                     \
  inline __nv_bfloat16 h##name(__nv_bfloat16 value) {                                                   \
    const double x = __bfloat162float(value);                                                           \
    return __double2bfloat16(formula);                                                                  \
  }                                                                                                     \
  inline __half2 h2##name(__half2 value) { return __halves2half2(h##name(value.x), h##name(value.y)); } \
  inline __nv_bfloat162 h2##name(__nv_bfloat162 value) {                                                \
    return __halves2bfloat162(h##name(value.x), h##name(value.y));                                      \
  }
CUDA_EMULATION_HALF(exp, std::exp(x))
CUDA_EMULATION_HALF(exp2, std::exp2(x))
CUDA_EMULATION_HALF(log, std::log(x))
CUDA_EMULATION_HALF(log2, std::log2(x))
CUDA_EMULATION_HALF(sqrt, std::sqrt(x))
CUDA_EMULATION_HALF(rsqrt, 1.0 / std::sqrt(x))
CUDA_EMULATION_HALF(rcp, 1.0 / x)
CUDA_EMULATION_HALF(sin, std::sin(x))
CUDA_EMULATION_HALF(cos, std::cos(x))
CUDA_EMULATION_HALF(tanh, std::tanh(x))
CUDA_EMULATION_HALF(floor, std::floor(x))
CUDA_EMULATION_HALF(ceil, std::ceil(x))
CUDA_EMULATION_HALF(rint, std::nearbyint(x))
CUDA_EMULATION_HALF(trunc, std::trunc(x))
#undef CUDA_EMULATION_HALF

inline int __half2int_rn(__half x) { return __float2int_rn(__half2float(x)); }
inline int __bfloat162int_rn(__nv_bfloat16 x) { return __float2int_rn(__bfloat162float(x)); }

namespace cuda_emulation {
/// Changes a value without an atomic type of its own through the bits of one that has it.
template <class Bits, class T>
T atomic_add_bits(T* p, T value) {
  static_assert(sizeof(Bits) == sizeof(T));
  T before = value;
  atomic_change(reinterpret_cast<Bits*>(p), [&before, value](Bits old) {
    std::memcpy(static_cast<void*>(&before), &old, sizeof old);
    const T sum = before + value;
    std::memcpy(&old, &sum, sizeof old);
    return old;
  });
  return before;
}
}  // namespace cuda_emulation
inline __half atomicAdd(__half* p, __half value) { return cuda_emulation::atomic_add_bits<unsigned short>(p, value); }
inline __half2 atomicAdd(__half2* p, __half2 value) { return cuda_emulation::atomic_add_bits<unsigned>(p, value); }
inline __nv_bfloat16 atomicAdd(__nv_bfloat16* p, __nv_bfloat16 value) {
  return cuda_emulation::atomic_add_bits<unsigned short>(p, value);
}
inline __nv_bfloat162 atomicAdd(__nv_bfloat162* p, __nv_bfloat162 value) {
  return cuda_emulation::atomic_add_bits<unsigned>(p, value);
}
