// CUDA's atomic functions. Blocks run on several host threads, so they are real ones. Relaxed, as CUDA's are: only a
// fence or a barrier orders other memory.
#pragma once

#include <type_traits>

namespace cuda_emulation {

#if defined(__SANITIZE_THREAD__) || defined(CUDA_EMULATION_TSAN)
/// A fence, and what the race checker, which sees none, is told instead: what comes before a fence and then an atomic
/// function is ordered before what follows an atomic function on the same address and then a fence. Each of the four
/// may be another thread's of the block, with a barrier between.
void fence();
void note_atomic(const void* p);
#else
inline void fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void note_atomic(const void*) {}
#endif

/// Replaces *p by change(*p); returns what was there.
template <class T, class Change>
T atomic_change(T* p, Change change) {
  note_atomic(p);
  T before, after;
  __atomic_load(p, &before, __ATOMIC_RELAXED);
  do {
    after = change(before);
  } while (!__atomic_compare_exchange(p, &before, &after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return before;
}

template <class T>
concept AtomicNumber = (std::is_integral_v<T> || std::is_floating_point_v<T>)&&(sizeof(T) == 4 || sizeof(T) == 8);

}  // namespace cuda_emulation

template <cuda_emulation::AtomicNumber T>
T atomicAdd(T* p, std::type_identity_t<T> value) {
  return cuda_emulation::atomic_change(p, [value](T old) { return static_cast<T>(old + value); });
}
template <cuda_emulation::AtomicNumber T>
T atomicSub(T* p, std::type_identity_t<T> value) {
  return cuda_emulation::atomic_change(p, [value](T old) { return static_cast<T>(old - value); });
}
template <cuda_emulation::AtomicNumber T>
T atomicMax(T* p, std::type_identity_t<T> value) {
  return cuda_emulation::atomic_change(p, [value](T old) { return old < value ? value : old; });
}
template <cuda_emulation::AtomicNumber T>
T atomicMin(T* p, std::type_identity_t<T> value) {
  return cuda_emulation::atomic_change(p, [value](T old) { return value < old ? value : old; });
}
template <cuda_emulation::AtomicNumber T>
T atomicExch(T* p, std::type_identity_t<T> value) {
  return cuda_emulation::atomic_change(p, [value](T) { return value; });
}
template <cuda_emulation::AtomicNumber T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return cuda_emulation::atomic_change(p, [expected, value](T old) { return old == expected ? value : old; });
}
template <cuda_emulation::AtomicNumber T>
T atomicAnd(T* p, std::type_identity_t<T> value) {
  return cuda_emulation::atomic_change(p, [value](T old) { return old & value; });
}
template <cuda_emulation::AtomicNumber T>
T atomicOr(T* p, std::type_identity_t<T> value) {
  return cuda_emulation::atomic_change(p, [value](T old) { return old | value; });
}
inline unsigned atomicInc(unsigned* p, unsigned last) {
  return cuda_emulation::atomic_change(p, [last](unsigned old) { return old >= last ? 0u : old + 1; });
}
inline unsigned atomicDec(unsigned* p, unsigned last) {
  return cuda_emulation::atomic_change(p, [last](unsigned old) { return old == 0 || old > last ? last : old - 1; });
}
