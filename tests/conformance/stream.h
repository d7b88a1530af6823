// A stream beside the device's own, for what may leave a failure behind.
#pragma once

#include <functional>
#include <string>

#include "core/base/abi_call.h"
#include "tests/conformance/side.h"

namespace backplane::conformance {

class Stream {
 public:
  // Throws Skipped where the plugin has none.
  explicit Stream(device::Device& device);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  bp_stream get() const { return stream_; }
  bp_status sync();

 private:
  device::Device& device_;
  bp_stream stream_ = nullptr;
};

// What comes of a call in the end: its own status, or where that is BP_OK, the one that surfaces at the sync of a
// stream made for it.
bp_status settled(device::Device& device, const std::function<bp_status(bp_stream, bp_context)>& call);

}  // namespace backplane::conformance
