// What fences and atomic functions order between blocks, told to the race checker.
#include <algorithm>

#include "tests/cuda_emulation/block.h"
#include "tests/cuda_emulation/include/cuda_emulation/atomics.h"

namespace cuda_emulation {

void BlockRunner::fence() {
  fenced_ = true;
  for (const void* p : atomics_) acquire(p);
}

void BlockRunner::note_atomic(const void* p) {
  if (fenced_) release(p);
  const Unchecked unchecked;
  if (std::find(atomics_.begin(), atomics_.end(), p) == atomics_.end()) atomics_.push_back(p);
}

#if defined(CUDA_EMULATION_TSAN)
void fence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (BlockRunner::running_here()) BlockRunner::current().fence();
}

void note_atomic(const void* p) {
  if (BlockRunner::running_here()) BlockRunner::current().note_atomic(p);
}
#endif

}  // namespace cuda_emulation
