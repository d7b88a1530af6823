// Exact results of ops, and how far those of a device may be from them when its inputs already were inexact: for what
// can only be judged at the end of several ops.
#pragma once

#include "tests/conformance/weights.h"

namespace backplane::conformance {

struct Value {
  Array exact, bound;
};
inline Value exactly(Array x) {
  Array none(x.shape);
  return {std::move(x), std::move(none)};
}

// Each computes on the oracle; `support` is what the subject declares for that op.
Value normed(Trial& trial, const bp_support& support, const Value& x, const Array& weight, double eps);  // RMS
Value projected(Trial& trial, const bp_support& support, const Value& x, const Weight& weight, const Array* bias);
Value gated(Trial& trial, const bp_support& support, const Value& gate, const Value& up);  // SILU
Value rotated(Trial& trial, const bp_support& support, const Value& x, const RopeTerms& terms);
Value added(Trial& trial, const bp_support& support, const Value& a, const Value& b);

}  // namespace backplane::conformance
