// Tells the core which kernel an op takes. SPDX-License-Identifier: MIT
#pragma once

#include "backplane_call.hpp"
#include "backplane_kernels.h"

namespace backplane::plugin {

// Inside `run`: this op's work is done by that kernel. Static text; nothing happens where the core doesn't ask.
inline void took(bp_context context, const char* kernel) noexcept {
  static const auto* const extension = static_cast<const bp_kernels_extension*>(
      host != nullptr && struct_has(host, &bp_host::query_extension) && host->query_extension != nullptr
          ? host->query_extension(host->self, BP_KERNELS_EXTENSION)
          : nullptr);
  if (extension != nullptr) extension->took(context, kernel);
}

}  // namespace backplane::plugin
