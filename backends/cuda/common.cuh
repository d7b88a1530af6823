// What the kernels share.
#pragma once

#include "backends/cuda/device_compat.cuh"
#include "backends/cuda/kernels.h"

namespace backplane::cuda {

template <class... P>
cudaError_t launch(cudaStream_t stream, void (*kernel)(P...), dim3 grid, unsigned threads, std::size_t shared_bytes,
                   const std::type_identity_t<P>&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// The same with much shared memory: `shared_bytes` beside the `own_bytes` that the kernel declares, of the `most` that
// a block can have. How much a kernel's launches may ask for is one value for all threads that use the GPU, so it is
// always set to all there is: another model's launch can then come between the two calls.
template <class... P>
cudaError_t launch_shared(cudaStream_t stream, void (*kernel)(P...), dim3 grid, unsigned threads,
                          std::size_t shared_bytes, std::size_t own_bytes, int most,
                          std::type_identity_t<P>... arguments) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most - static_cast<int>(own_bytes));
  return error != cudaSuccess ? error : launch(stream, kernel, grid, threads, shared_bytes, arguments...);
}

constexpr __host__ __device__ unsigned blocks_for(std::int64_t items, std::int64_t each) {
  return static_cast<unsigned>((items + each - 1) / each);
}

// The same as the second size of a grid, which can't have more: kernels go on by as many as there are.
constexpr unsigned grid_y(std::int64_t items, std::int64_t each) {
  constexpr std::int64_t kMost = 65535;
  const std::int64_t wanted = (items + each - 1) / each;
  return static_cast<unsigned>(wanted < kMost ? wanted : kMost);
}

template <class T = float>
__device__ __forceinline__ T* row_of(const Rows& rows, std::int64_t number) {
  if (rows.flat) return reinterpret_cast<T*>(rows.data + number * rows.inner_stride);
  const std::int64_t inner = number % rows.inner, rest = number / rows.inner;
  const std::int64_t offset =
      inner * rows.inner_stride + rest % rows.middle * rows.middle_stride + rest / rows.middle * rows.outer_stride;
  return reinterpret_cast<T*>(rows.data + offset);
}

__device__ __forceinline__ void report(int* fault, int what) { atomicExch(fault, what); }

__device__ __forceinline__ float warp_sum(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

__device__ __forceinline__ float warp_max(float value) {
  for (int step = 16; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}

// The sum over a block of up to 1024 threads, in one order, to all of them. `room` is shared memory of 32 floats.
__device__ __forceinline__ float block_sum(float value, float* room) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  value = warp_sum(value);
  __syncthreads();  // who was here before has read its sum
  if (lane == 0) cu::st_shared(room + warp, value);
  __syncthreads();
  return warp_sum(lane < blockDim.x / 32 ? cu::ld_shared(room + lane) : 0.0f);
}

// Elements of the types that caches and float weights have.
template <class T>
__device__ __forceinline__ float to_float(T value) {
  if constexpr (sizeof(T) == 4) {
    return value;
  } else if constexpr (std::is_same_v<T, __half>) {
    return __half2float(value);
  } else {
    return __bfloat162float(value);
  }
}

template <class T>
__device__ __forceinline__ T from_float(float value) {
  if constexpr (sizeof(T) == 4) {
    return value;
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(value);
  } else {
    return __float2bfloat16_rn(value);
  }
}

// Calls `visit` with the C++ type of the activations as its template argument.
template <class Visit>
cudaError_t visit_activation(bp_type type, Visit&& visit) {
  if (type == BP_TYPE_BF16) return visit.template operator()<__nv_bfloat16>();
  return visit.template operator()<float>();
}

}  // namespace backplane::cuda
