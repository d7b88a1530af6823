#include "core/base/abi_call.h"

#include <fmt/format.h>

#include <cstring>

namespace backplane {

std::string AbiCall::text() const {
  std::lock_guard lock(mutex_);
  return text_;
}

bp_status AbiCall::fail(bp_context context, bp_status status, const char* text) noexcept {
  if (status == BP_OK) status = BP_INTERNAL;
  if (!context || !text) return status;
  auto& call = *reinterpret_cast<AbiCall*>(context);
  constexpr std::size_t kLongest = 1024;  // a plugin's text is untrusted: bounded
  try {
    std::lock_guard lock(call.mutex_);
    if (call.text_.empty()) call.text_.assign(text, ::strnlen(text, kLongest));
  } catch (...) {  // no memory for the text: the status alone must do
  }
  return status;
}

void AbiCall::took(bp_context context, const char* kernel) noexcept {
  if (!context) return;
  auto& call = *reinterpret_cast<AbiCall*>(context);
  if (!call.kernel_) call.kernel_ = kernel;
}

void AbiCall::check(bp_status status, std::string_view where) const {
  if (status == BP_OK) return;
  std::string what = status_text(status);
  if (const std::string given = text(); !given.empty()) what += " (" + given + ")";
  if (status == BP_OUT_OF_MEMORY) {
    throw Error(ErrorCode::kCapacity, what, where, "use a smaller --ctx, a smaller model or another device");
  }
  if (status == BP_DEVICE_LOST) throw DeviceLost(what, where);
  throw Error(ErrorCode::kDevice, what, where);
}

std::string status_text(bp_status status) {
  switch (status) {
    case BP_OK:
      return "ok";
    case BP_UNSUPPORTED:
      return "not supported";
    case BP_OUT_OF_MEMORY:
      return "out of memory";
    case BP_INVALID:
      return "invalid argument";
    case BP_DEVICE_LOST:
      return "device lost";
    case BP_INTERNAL:
      return "internal error of the plugin";
    case BP_UNAVAILABLE:
      return "not available";
    default:
      return fmt::format("unknown status {}", status);
  }
}

}  // namespace backplane
