// Host memory for what comes back of a device again and again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/device/device.h"

namespace backplane::device {

// Pinned where the device has such memory, so that copies need no help of the host. Must not outlive the device.
class Landing {
 public:
  Landing() = default;
  Landing(Device& device, std::uint64_t bytes) : pinned_(device.alloc_pinned(bytes)) {
    if (!pinned_) pageable_.resize(bytes);
  }

  std::span<std::byte> bytes() {
    return pinned_ ? std::span(pinned_->host(), pinned_->bytes()) : std::span<std::byte>(pageable_);
  }

 private:
  std::optional<Buffer> pinned_;
  std::vector<std::byte> pageable_;
};

}  // namespace backplane::device
