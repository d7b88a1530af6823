// The context of one call into a plugin: where host.fail leaves its text, and how a status becomes an Error.
#pragma once

#include <mutex>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "plugins/abi/backplane_plugin.h"

namespace backplane {

// Lives on the caller's stack for the length of one call. A plugin may call host.fail from several threads.
class AbiCall {
 public:
  bp_context context() { return reinterpret_cast<bp_context>(this); }

  // The text the plugin gave, bounded and made printable; empty if it gave none.
  std::string text() const;

  // host.fail: keeps the first text, returns `status` (or BP_INTERNAL for BP_OK, which is no failure).
  static bp_status fail(bp_context context, bp_status status, const char* text) noexcept;

  // bp_kernels_extension.took: keeps the first name.
  static void took(bp_context context, const char* kernel) noexcept;
  // What the plugin says it took for an op, or null.
  const char* kernel() const { return kernel_; }

  // Throws when `status` is not BP_OK: kCapacity for BP_OUT_OF_MEMORY, DeviceLost for BP_DEVICE_LOST, else kDevice.
  // `where` names device and call.
  void check(bp_status status, std::string_view where) const;

 private:
  mutable std::mutex mutex_;
  std::string text_;
  const char* kernel_ = nullptr;
};

// "out of memory" for BP_OUT_OF_MEMORY; an unknown number gives "status N".
std::string status_text(bp_status status);

}  // namespace backplane
