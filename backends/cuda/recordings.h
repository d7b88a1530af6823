// Who records on a GPU. Whatever waits for a whole GPU, as making and destroying a handle of cuBLASLt does, spoils what
// others record there, in any mode of capture.
#pragma once

#include <cstdint>
#include <mutex>
#include <utility>

namespace backplane::cuda {

// Of one GPU, for all of its devices and streams. Free-threaded.
class Recordings {
 public:
  // Runs `start`, which begins a recording; nothing is counted where it throws.
  template <class Function>
  void begin(Function&& start) {
    const std::lock_guard lock(mutex_);
    std::forward<Function>(start)();
    ++count_;
  }
  void end() noexcept {
    const std::lock_guard lock(mutex_);
    --count_;
  }
  // Runs `work` while no recording can begin. False, and nothing done, while somebody records.
  template <class Function>
  bool in_quiet(Function&& work) {
    const std::lock_guard lock(mutex_);
    if (count_ != 0) return false;
    std::forward<Function>(work)();
    return true;
  }

 private:
  std::mutex mutex_;
  int count_ = 0;
};

// The GPU's own; it lives as long as the plugin.
Recordings& recordings_of(std::uint32_t gpu);

}  // namespace backplane::cuda
