// The few things that a kernel writes differently so that the same text also runs without a GPU.
//
// nvcc's build makes plain CUDA of them: __shared__ declarations, ordinary loads and stores, no cost. The emulated
// build (BACKPLANE_CUDA_EMULATED, see tests/cuda_emulation) gives each shared object a heap block of its own, poisoned
// and guarded, and counts what each warp's loads and stores cost: sectors of global memory, conflicts of shared banks.
//
//   CU_SHARED(float, tile, [32][33]);   static shared memory, an array or (without the brackets) one object
//   CU_DYN_SHARED(float, scores);       float* scores: the launch's dynamic shared memory, aligned to 16 bytes
//   cu::ld_global(p), cu::st_global(p, v)   device memory; T of 1, 2, 4, 8 or 16 bytes, one request a warp
//   cu::ld_shared(p), cu::st_shared(p, v)   shared memory, likewise
//   cu::keep(p)                         p in device memory, which the compiler shall keep and not compute again
//   CU_FAULT("few.lost_tail")           false, but in the emulated build true where CUDA_EMULATION_FAULT has that name:
//                                       a fault put in by hand, which the conformance suite must find (tests/unit/cuda)
//
// Nothing forces a kernel to go through the accessors; what doesn't is executed but not counted.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <type_traits>

#ifdef BACKPLANE_CUDA_EMULATED

#include <cuda_emulation/access.h>
#include <cuda_emulation/fault.h>
#include <cuda_emulation/half.h>
#include <cuda_emulation/shared.h>
#define CU_SHARED(T, name, ...) CUDA_EMULATION_SHARED(T, name, __VA_ARGS__)
#define CU_FAULT(name) CUDA_EMULATION_FAULT(name)
#define CU_DYN_SHARED(T, name) T* name = static_cast<T*>(::cuda_emulation::dynamic_shared())
namespace cu {
using cuda_emulation::ld_global;
using cuda_emulation::ld_shared;
using cuda_emulation::st_global;
using cuda_emulation::st_shared;
template <class T>
T* keep(T* p) {
  return p;
}
}  // namespace cu

#else

#define CU_FAULT(name) false
#define CU_SHARED(T, name, ...) __shared__ T name __VA_ARGS__
#define CU_DYN_SHARED(T, name)                                        \
  extern __shared__ __align__(16) unsigned char cu_dynamic_shared_[]; \
  T* name = reinterpret_cast<T*>(cu_dynamic_shared_)
namespace cu {
template <class T>
__device__ __forceinline__ T ld_global(const T* p) {
  return *p;
}
template <class T>
__device__ __forceinline__ void st_global(T* p, std::type_identity_t<T> value) {
  *p = value;
}
template <class T>
__device__ __forceinline__ T ld_shared(const T* p) {
  return *p;
}
template <class T>
__device__ __forceinline__ void st_shared(T* p, std::type_identity_t<T> value) {
  *p = value;
}
#ifdef __CUDACC__  // host code that includes this has no such functions
template <class T>
__device__ __forceinline__ T* keep(T* p) {
  std::size_t address = __cvta_generic_to_global(p);
  asm("" : "+l"(address));
  return static_cast<T*>(__cvta_global_to_generic(address));
}
#endif
}  // namespace cu

#endif
