// The device side of CUDA C++ for kernels that run on the host: built-in variables, synchronization, warp functions.
// Contracts are CUDA's; where CUDA leaves a result undefined, the emulation delivers poison or reports the kernel.
#pragma once

#include <vector_types.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda_emulation/atomics.h"
#include "cuda_emulation/math.h"

#undef __launch_bounds__
#define __launch_bounds__(...)

// Set whenever a CUDA thread gets its turn. Initial-exec, because every kernel reads them all the time.
#define CUDA_EMULATION_BUILTIN extern thread_local constinit __attribute__((tls_model("initial-exec")))
CUDA_EMULATION_BUILTIN uint3 threadIdx;
CUDA_EMULATION_BUILTIN uint3 blockIdx;
CUDA_EMULATION_BUILTIN dim3 blockDim;
CUDA_EMULATION_BUILTIN dim3 gridDim;
#undef CUDA_EMULATION_BUILTIN
constexpr int warpSize = 32;

namespace cuda_emulation {

/// The calling CUDA thread's place in its warp.
unsigned lane();

/// Waits for all threads of the block; returns the sum of what they passed.
int sync_block(int value);

/// Waits for the lanes of mask that have not ended. `exchange` (or null) runs once, when all are there, with each
/// lane's argument. Orders memory between them, as __syncwarp does.
using Exchange = void (*)(void* const* arguments, unsigned present);
void sync_warp(unsigned mask, void* argument, Exchange exchange);

/// The value that lane `source` passed; poison from a lane that isn't there. Orders no memory.
std::uint64_t shuffle(unsigned mask, std::uint64_t value, unsigned source);

/// One bit for each lane of mask that passed true. Orders no memory.
unsigned ballot(unsigned mask, bool predicate);

/// Ends the kernel with an error, as a trap does; does not return.
[[noreturn]] void trap(const char* reason);

template <class T>
T shuffle_any(unsigned mask, T value, unsigned source) {
  static_assert(std::is_trivially_destructible_v<T> && sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
  std::uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const void*>(&value), sizeof(T));
  bits = shuffle(mask, bits, source);
  std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  return value;
}

}  // namespace cuda_emulation

inline void __syncthreads() { cuda_emulation::sync_block(0); }
inline int __syncthreads_count(int predicate) { return cuda_emulation::sync_block(predicate != 0); }
inline int __syncthreads_or(int predicate) { return __syncthreads_count(predicate) != 0; }
inline int __syncthreads_and(int predicate) { return __syncthreads_count(predicate == 0) == 0; }
inline void __syncwarp(unsigned mask = 0xffffffffu) { cuda_emulation::sync_warp(mask, nullptr, nullptr); }
inline void __threadfence() { cuda_emulation::fence(); }
inline void __threadfence_block() { __threadfence(); }
inline void __threadfence_system() { __threadfence(); }
inline void __trap() { cuda_emulation::trap("__trap"); }
inline void __nanosleep(unsigned) {}
inline void cudaGridDependencySynchronize() {}
inline void cudaTriggerProgrammaticLaunchCompletion() {}

// A segment of `width` lanes shuffles by itself; a source outside of it means the lane's own value.
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const unsigned lane = cuda_emulation::lane(), last = static_cast<unsigned>(width) - 1;
  return cuda_emulation::shuffle_any(mask, value, (lane & ~last) | (static_cast<unsigned>(source) & last));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned lane = cuda_emulation::lane(), place = lane & (static_cast<unsigned>(width) - 1);
  return cuda_emulation::shuffle_any(mask, value, place >= delta ? lane - delta : lane);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned lane = cuda_emulation::lane(), place = lane & (static_cast<unsigned>(width) - 1);
  return cuda_emulation::shuffle_any(mask, value, place + delta < static_cast<unsigned>(width) ? lane + delta : lane);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  const unsigned lane = cuda_emulation::lane(), first = lane & ~(static_cast<unsigned>(width) - 1);
  const unsigned source = lane ^ static_cast<unsigned>(bits);  // may lie in an earlier segment, not in a later one
  return cuda_emulation::shuffle_any(mask, value, source < first + static_cast<unsigned>(width) ? source : lane);
}

inline unsigned __ballot_sync(unsigned mask, int predicate) { return cuda_emulation::ballot(mask, predicate != 0); }
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }
/// The emulation runs one lane at a time: the caller alone is a legal answer, and the one that code must cope with.
inline unsigned __activemask() { return 1u << cuda_emulation::lane(); }

namespace cuda_emulation {
template <class T, class Combine>
T reduce_warp(unsigned mask, T value, Combine combine) {
  T result = value;
  bool first = true;
  for (unsigned source = 0; source < 32; ++source) {
    if ((mask >> source & 1) == 0) continue;
    const T other = shuffle_any(mask, value, source);
    result = first ? other : combine(result, other);
    first = false;
  }
  return result;
}
}  // namespace cuda_emulation
template <class T>
T __reduce_add_sync(unsigned mask, T value) {
  return cuda_emulation::reduce_warp(mask, value, [](T a, T b) { return a + b; });
}
template <class T>
T __reduce_max_sync(unsigned mask, T value) {
  return cuda_emulation::reduce_warp(mask, value, [](T a, T b) { return a < b ? b : a; });
}
template <class T>
T __reduce_min_sync(unsigned mask, T value) {
  return cuda_emulation::reduce_warp(mask, value, [](T a, T b) { return b < a ? b : a; });
}
