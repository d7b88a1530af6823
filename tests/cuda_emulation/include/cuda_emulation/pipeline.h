// Asynchronous copies from global to shared memory (cp.async). They land when the thread that made them waits for them,
// never before, so that a missing wait reads NaN.
#pragma once

#include <cstddef>
#include <source_location>

namespace cuda_emulation {

/// Copies `bytes` (4, 8 or 16, aligned to as many), the last `zeros` of them as 0.
void copy_async(void* to, const void* from, std::size_t bytes, std::size_t zeros, std::source_location where);
/// Makes a group of the copies since the last.
void commit_copies();
/// Waits until only the latest groups are left.
void wait_copies(std::size_t groups_left);

}  // namespace cuda_emulation

inline void __pipeline_memcpy_async(void* __restrict__ to, const void* __restrict__ from, std::size_t bytes,
                                    std::size_t zeros = 0,
                                    std::source_location where = std::source_location::current()) {
  cuda_emulation::copy_async(to, from, bytes, zeros, where);
}
inline void __pipeline_commit() { cuda_emulation::commit_copies(); }
inline void __pipeline_wait_prior(std::size_t groups_left) { cuda_emulation::wait_copies(groups_left); }
