// What the header says of the types and shapes of the single ops' arguments. SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "backplane_check.hpp"

namespace backplane::plugin {

// Each throws BP_UNSUPPORTED for what such a device can't do, and BP_INVALID for what contradicts backplane_plugin.h.
// With Check::running they don't look into memory: that is View's part, and what ids and page numbers lead to is
// `run`'s.

inline void check(Check& check, const bp_embed_args& args) {
  check.exact(args.ids, "ids", BP_TYPE_I32, {Check::kAny});
  check.matrix(args.table, "table", Check::kAny, Check::kAny);
  check.activation(args.out, "out", {args.ids.shape[0], args.table.tensor.shape[1]});
}

inline void check(Check& check, const bp_linear_args& args) {
  check.activation(args.x, "x", {Check::kAny, Check::kAny});
  const std::int64_t tokens = args.x.shape[0], inputs = args.x.shape[1];
  check.matrix(args.weight, "weight", Check::kAny, inputs);
  const std::int64_t outputs = args.weight.tensor.shape[0];
  check.parameters(args.bias, "bias", outputs);
  check.activation(args.out, "out", {tokens, outputs});
  if (check.code == BP_OP_LINEAR_ADD) check.activation(args.residual, "residual", {tokens, outputs});
}

inline void check(Check& check, const bp_norm_args& args) {
  if (args.kind != BP_NORM_RMS && args.kind != BP_NORM_LAYER) {
    refuse("norm kind " + std::to_string(args.kind) + " is unknown");
  }
  check.activation_like(args.x, "x", args.x);
  const std::int64_t length = row_length(args.x);
  check.parameters(args.weight, "weight", length);
  check.parameters(args.bias, "bias", length);
  check.activation_like(args.out, "out", args.x);
}

inline void check(Check& check, const bp_rope_args& args) {
  check.activation(args.x, "x", {Check::kAny, Check::kAny, Check::kAny});
  if (args.n_dims % 2 != 0 || args.n_dims > args.x.shape[2]) {
    check.invalid("n_dims is " + std::to_string(args.n_dims) + " for heads of " + std::to_string(args.x.shape[2]));
  }
  if (args.interleaved > 1) refuse("interleaved is neither 0 nor 1");
  check.exact(args.pos, "pos", BP_TYPE_I32, {args.x.shape[0]});
  check.exact(args.row, "row", BP_TYPE_I32, {args.x.shape[0]});
  check.exact(args.inv_freq, "inv_freq", BP_TYPE_F64, {Check::kAny, args.n_dims / 2});
  check.exact(args.scale, "scale", BP_TYPE_F64, {args.inv_freq.shape[0]});
}

inline void check_kind(std::uint32_t kind) {
  if (kind < BP_ACT_GELU_ERF || kind > BP_ACT_RELU) {
    refuse("activation kind " + std::to_string(kind) + " is unknown");
  }
}

inline void check(Check& check, const bp_activation_args& args) {
  check_kind(args.kind);
  check.activation_like(args.x, "x", args.x);
  check.activation_like(args.out, "out", args.x);
}

inline void check(Check& check, const bp_glu_args& args) {
  check_kind(args.kind);
  check.activation_like(args.gate, "gate", args.gate);
  check.activation_like(args.up, "up", args.gate);
  check.activation_like(args.out, "out", args.gate);
}

inline void check(Check& check, const bp_binary_args& args) {
  check.activation_like(args.a, "a", args.a);
  check.activation_like(args.out, "out", args.a);
  check.activation_like(args.b, "b", args.b);
  // One row for all, written with as many dimensions as one likes.
  const bool one_row = row_count(args.b) == 1 && row_length(args.b) == row_length(args.a);
  if (!one_row) check.same_shape(args.b, "b", args.a);
}

inline void check(Check& check, const bp_scalar_args& args) {
  if (check.code == BP_OP_FILL) {
    check.well_formed(args.out, "out");
    if (is_quantized(args.out.type)) refuse("FILL of a quantized type");
    return;
  }
  check.activation_like(args.x, "x", args.x);
  check.activation_like(args.out, "out", args.x);
}

inline void check(Check& check, const bp_unary_args& args) {
  check.well_formed(args.x, "x");
  check.same_shape(args.out, "out", args.x);
  if (check.code == BP_OP_COPY) {
    if (args.x.type != args.out.type) check.invalid("x and out of a COPY have different types");
    return;
  }
  if (!is_float(args.x.type) && !is_quantized(args.x.type)) {
    refuse(std::string("CAST from ") + type_info(args.x.type).name);
  }
  if (!is_float(args.out.type)) {
    refuse(std::string("CAST to ") + type_info(args.out.type).name);
  }
}

inline void check(Check& check, const bp_gather_args& args) {
  check.shape(args.x, "x", {Check::kAny, Check::kAny});
  check.exact(args.index, "index", BP_TYPE_I32, {Check::kAny});
  check.exact(args.out, "out", args.x.type, {args.index.shape[0], args.x.shape[1]});
}

inline void check(Check& check, const bp_advance_args& args) {
  check.exact(args.ids, "ids", BP_TYPE_I32, {Check::kAny});
  check.exact(args.target, "target", BP_TYPE_I32, {args.ids.shape[0]});
  check.exact(args.token, "token", BP_TYPE_I32, {Check::kAny});
}

inline void check_vocabulary(const Check& check, const bp_tensor& x) {
  if (x.shape[1] > INT32_MAX) check.invalid("rows are longer than an id can count");
}

inline void check(Check& check, const bp_topk_args& args) {
  check.activation(args.x, "x", {Check::kAny, Check::kAny});
  check_vocabulary(check, args.x);
  check.exact(args.ids, "ids", BP_TYPE_I32, {args.x.shape[0], Check::kAny});
  check.activation(args.values, "values", {args.x.shape[0], args.ids.shape[1]});
  if (args.ids.shape[1] > args.x.shape[1]) {
    check.invalid("k is " + std::to_string(args.ids.shape[1]) + " of " + std::to_string(args.x.shape[1]) + " values");
  }
}

inline void check(Check& check, const bp_sample_args& args) {
  check.activation(args.logits, "logits", {Check::kAny, Check::kAny});
  check_vocabulary(check, args.logits);
  const std::int64_t rows = args.logits.shape[0];
  check.exact(args.temperature, "temperature", BP_TYPE_F64, {rows});
  check.exact(args.top_p, "top_p", BP_TYPE_F64, {rows});
  check.exact(args.min_p, "min_p", BP_TYPE_F64, {rows});
  check.exact(args.top_k, "top_k", BP_TYPE_I32, {rows});
  check.exact(args.seed, "seed", BP_TYPE_U64, {rows});
  check.exact(args.counter, "counter", BP_TYPE_U64, {rows});
  check.exact(args.ids, "ids", BP_TYPE_I32, {rows});
}

}  // namespace backplane::plugin
