// The norm that some fused ops make of their x themselves (x_norm of bp_linear_args), as cases need it.
#pragma once

#include "tests/conformance/trial.h"

namespace backplane::conformance {

class XNorm {
 public:
  // For x [T,C], with parameters drawn for it: BP_NORM_RMS has a weight, BP_NORM_LAYER a bias, too.
  XNorm(Trial& trial, std::uint32_t kind, Array x);

  // The op's x on a side. `x_norm` points into this object, until the next call.
  bp_tensor bind(Side& side, const bp_norm_args*& x_norm);
  std::uint64_t features() const;

  // What the norm is on the oracle, and how far from it the op's own may be, rounded as the device declares it. Once
  // the op has run on the subject, which says so.
  struct Result {
    Array y, errors;
  };
  Result result();

 private:
  bp_norm_args on(Side& side);

  Trial& trial_;
  std::uint32_t kind_;
  Array x_, weight_, bias_;
  bp_norm_args args_{};
};

}  // namespace backplane::conformance
