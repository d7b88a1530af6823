#include "backends/onednn/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <string>

#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::onednn {
namespace {

constexpr std::uint64_t kLargePage = 2 << 20;
// Most of a region is only addresses until it is used: a large one wastes less at its end than several.
constexpr std::uint64_t kRegion = 128 * kLargePage;
// Tools that watch for accesses beyond a piece see only pieces that are allocated one by one.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kShare = false;
#else
constexpr bool kShare = true;
#endif

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) {
  const plugin::Bytes padded = plugin::checked_add(bytes, unit - 1);
  plugin::require(padded.has_value(), "memory of impossible size");
  return *padded & ~(unit - 1);
}

std::shared_ptr<void> allocate(std::uint64_t bytes, std::uint64_t alignment) {
  void* data = std::aligned_alloc(alignment, round_up(bytes, alignment));
  if (data == nullptr) throw plugin::Failure(BP_OUT_OF_MEMORY, "no memory for " + std::to_string(bytes) + " bytes");
  return {data, std::free};
}

std::shared_ptr<void> allocate_large(std::uint64_t bytes) {
  std::shared_ptr<void> region = allocate(bytes, kLargePage);
#ifdef MADV_HUGEPAGE
  (void)madvise(region.get(), bytes, MADV_HUGEPAGE);  // where there are none, small pages do
#endif
  return region;
}

}  // namespace

AlignedBytes::AlignedBytes(std::uint64_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  owner_ = allocate(bytes, plugin::kHostAlignment);
  data_ = static_cast<std::byte*>(owner_.get());
}

AlignedBytes SharedMemory::take(std::uint64_t bytes) {
  if (!kShare || bytes == 0) return AlignedBytes(bytes);
  AlignedBytes piece;
  piece.size_ = bytes;
  const std::uint64_t padded = round_up(bytes, plugin::kHostAlignment);
  if (padded > kRegion / 4) {  // a region of its own
    piece.owner_ = allocate_large(round_up(padded, kLargePage));
    piece.data_ = static_cast<std::byte*>(piece.owner_.get());
    return piece;
  }
  const std::lock_guard lock(mutex_);
  piece.owner_ = region_.lock();
  if (piece.owner_ == nullptr || padded > left_) {
    piece.owner_ = allocate_large(kRegion);
    region_ = piece.owner_;
    next_ = static_cast<std::byte*>(piece.owner_.get());
    left_ = kRegion;
  }
  piece.data_ = next_;
  next_ += padded;
  left_ -= padded;
  return piece;
}

}  // namespace backplane::onednn
