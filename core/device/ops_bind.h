// How the parts that several ops share are filled in. Private to core/device.
#pragma once

#include <utility>

#include "core/device/ops.h"

namespace backplane::device {

inline std::uint64_t activation_feature(std::uint32_t kind) {
  switch (kind) {
    case BP_ACT_GELU_ERF:
      return BP_FEATURE_GELU_ERF;
    case BP_ACT_GELU_TANH:
      return BP_FEATURE_GELU_TANH;
    case BP_ACT_SILU:
      return BP_FEATURE_SILU;
    default:
      return BP_FEATURE_RELU;
  }
}

// Input and output of an op that may work in place.
inline std::pair<bp_tensor, bp_tensor> bind_pair(Binder& b, const Tensor& x, const Tensor& out) {
  if (x.storage == out.storage && x.offset == out.offset && x.stride == out.stride) {
    const bp_tensor both = b.inout(x);
    return {both, both};
  }
  const bp_tensor in = b.in(x);
  return {in, b.out(out)};
}

inline void bind_norm(Binder& b, bp_norm_args& a, const Norm& spec, std::pair<bp_tensor, bp_tensor> x_out) {
  a = {};
  a.size = sizeof(a);
  std::tie(a.x, a.out) = x_out;
  a.weight = b.constant(spec.weight);
  a.bias = b.constant(spec.bias);
  a.eps = spec.eps;
  a.unit_offset = spec.unit_offset;
  a.kind = spec.kind;
  if (spec.kind == BP_NORM_LAYER) b.feature(BP_FEATURE_NORM_LAYER);
  if (spec.bias.present()) b.feature(BP_FEATURE_BIAS);
  if (!spec.weight.present()) b.feature(BP_FEATURE_NORM_NO_WEIGHT);
  if (spec.unit_offset != 0) b.feature(BP_FEATURE_NORM_UNIT_OFFSET);
}

inline void bind_linear(Binder& b, const Linear& spec, bp_matrix& weight, bp_tensor& bias) {
  b.matrix(weight, spec.weight, BP_USE_LINEAR);
  bias = b.constant(spec.bias);
  if (spec.bias.present()) b.feature(BP_FEATURE_BIAS);
}

inline void bind_rope(Binder& b, bp_rope_args& a, const Rope& spec, const Tensor& x, bp_tensor bound) {
  a = {};
  a.size = sizeof(a);
  a.x = bound;
  a.pos = b.pos();
  a.row = b.rope_row();
  a.inv_freq = b.constant(spec.inv_freq);
  a.scale = b.constant(spec.scale);
  a.n_dims = spec.n_dims;
  a.interleaved = spec.interleaved ? 1 : 0;
  if (spec.interleaved) b.feature(BP_FEATURE_ROPE_INTERLEAVED);
  if (spec.n_dims != x.last()) b.feature(BP_FEATURE_ROPE_PARTIAL);
}

inline void bind_kv_write(Binder& b, bp_kv_write_args& a, const Attention& spec, bp_tensor k, bp_tensor v,
                          bool value_dim_differs) {
  a = {};
  a.size = sizeof(a);
  a.step = b.step();
  a.k = k;
  a.v = v;
  b.kv(spec.layer, true, a.kv, a.k_pages, a.v_pages, a.layer);
  a.group = spec.group;
  if (value_dim_differs) b.feature(BP_FEATURE_ATTN_VALUE_DIM);
}

}  // namespace backplane::device
