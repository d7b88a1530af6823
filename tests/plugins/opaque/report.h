// What the opaque plugin tells a test about itself: the test owns one and hands its address over in the open option
// "report=ADDRESS" (decimal). It must outlive the device.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace opaque {

struct Report {
  std::atomic<std::uint64_t> calls{0};      // that can fail, since open: what fail_at counts
  std::atomic<std::uint64_t> questions{0};  // of supports, since open: what refuse_at counts
  std::atomic<std::uint64_t> runs{0};       // ops that ran to their end
  std::atomic<std::uint64_t> recorded{0};   // pieces of work in graphs
  std::atomic<std::uint64_t> launches{0};   // of graphs, that ran to their end
  std::atomic<std::uint64_t> live{0};       // objects that were not destroyed before close
  std::atomic<std::uint64_t> misuse{0};     // calls that the contract forbids, such as any on a lost device
  std::atomic<std::uint64_t> open{0};       // devices that are open now
  // To be set by the test: the call that fails instead of the option's, so that one device can fail many times.
  std::atomic<std::uint64_t> fail_at{0};

  std::string option() const { return "report=" + std::to_string(reinterpret_cast<std::uintptr_t>(this)); }
};

}  // namespace opaque
