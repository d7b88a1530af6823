// Memory for what a device keeps: weights and caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

namespace backplane::onednn {

// Memory that begins at a cache line. Its contents are undefined.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  // Memory of its own. Throws BP_OUT_OF_MEMORY.
  explicit AlignedBytes(std::uint64_t bytes);
  std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }

 private:
  friend class SharedMemory;
  std::shared_ptr<void> owner_;
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

// Hands out pieces of large regions, for which the system is asked for pages of 2 MB: weights are read from the first
// to the last with each token, and with 4 kB pages finding them takes a tenth of the time. A region is given back with
// its last piece; a piece that is given back before isn't used again. Any thread.
class SharedMemory {
 public:
  // Throws BP_OUT_OF_MEMORY.
  AlignedBytes take(std::uint64_t bytes);

 private:
  std::mutex mutex_;
  std::weak_ptr<void> region_;  // from which pieces are taken now
  std::byte* next_ = nullptr;
  std::uint64_t left_ = 0;
};

}  // namespace backplane::onednn
