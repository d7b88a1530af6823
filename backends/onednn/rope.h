// Rotary position embedding.
#pragma once

#include <cstdint>

#include "backends/onednn/ops.h"

namespace backplane::onednn {

// Cosines and sines of a step's tokens: one table for queries and keys.
class Rotation {
 public:
  // `args` has passed the SDK's check; its x is not looked at. Throws BP_INVALID for a row that the tables haven't.
  Rotation(const bp_rope_args& args, std::int64_t tokens, Workspace& workspace);

  // Turns one head of token t in place.
  void turn(std::int64_t t, float* head) const;
  // Computes token t's table. For every token once, before `turn`.
  void prepare(std::int64_t t) const;

  static std::uint64_t bytes(const bp_rope_args& args, std::int64_t tokens);

 private:
  View<const std::int32_t> pos_, row_;
  View<const double> inv_freq_, scale_;
  std::int64_t pairs_;
  bool interleaved_;
  float* table_;  // [T][2][pairs]
};

}  // namespace backplane::onednn
