// How a case ends when it doesn't pass: by throwing one of these.
#pragma once

#include <string>

#include "core/base/dtype.h"

namespace backplane::conformance {

struct Failed {
  std::string text;
};

// The plugin has said that it can't, and why.
struct Skipped {
  std::string reason;
};

// The plugin wants this op's activations in another type: the case starts again with it.
struct Retyped {
  DType activation;
};

inline void require(bool good, const std::string& text) {
  if (!good) throw Failed{text};
}

}  // namespace backplane::conformance
