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

inline void check_kind(std::uint32_t kind) {
  if (kind < BP_ACT_GELU_ERF || kind > BP_ACT_RELU) {
    refuse("activation kind " + std::to_string(kind) + " is unknown");
  }
}

// A norm whose x and out are these, whatever its arguments say of them.
inline void check_norm(Check& check, const bp_norm_args& args, const bp_tensor& x, const bp_tensor& out) {
  if (args.kind != BP_NORM_RMS && args.kind != BP_NORM_LAYER) {
    refuse("norm kind " + std::to_string(args.kind) + " is unknown");
  }
  check.activation_like(x, "x", x);
  const std::int64_t length = row_length(x);
  check.parameters(args.weight, "weight", length);
  check.parameters(args.bias, "bias", length);
  check.activation_like(out, "out", x);
}

inline void check(Check& check, const bp_norm_args& args) { check_norm(check, args, args.x, args.out); }

// Checks a part as the op that it is.
template <class Args>
void check_part(Check& whole, std::uint32_t code, const Args& args) {
  Check part(code, whole.real, whole.running, whole.owns_cache);
  check(part, args);
  whole.must_cast |= part.must_cast;
}

template <class Args>
Args part_of(const Args* args, const char* name) {
  if (args == nullptr) throw Failure(BP_INVALID, std::string("the arguments of ") + name + " are missing");
  return read_struct(args);
}

// The arguments of a part that has to be there, to look at.
template <class Args>
Whole<Args> whole_part(const Args* args, const char* name) {
  if (args == nullptr) throw Failure(BP_INVALID, std::string("the arguments of ") + name + " are missing");
  return Whole<Args>(args);
}

// The NORM that makes an op's x, of an op that has one.
inline bp_norm_args x_norm_of(const bp_norm_args* given, const bp_tensor& x) {
  bp_norm_args norm = part_of(given, "the norm of x");
  norm.out = x;
  return norm;
}

inline void check_x(Check& check, const bp_tensor& x, const bp_norm_args* x_norm) {
  check.activation(x, "x", {Check::kAny, Check::kAny});
  if (x_norm == nullptr) return;
  const Whole<bp_norm_args> norm(x_norm);
  check_norm(check, *norm, norm->x, x);
}

// A product with x, whose type and shape were looked at. Returns how many results it has for each row.
inline std::int64_t check_product(const Check& check, const bp_tensor& x, const bp_matrix& weight,
                                  const bp_tensor& bias) {
  check.matrix(weight, "weight", Check::kAny, x.shape[1]);
  check.parameters(bias, "bias", weight.tensor.shape[0]);
  return weight.tensor.shape[0];
}

inline void check(Check& check, const bp_linear_args& args) {
  check_x(check, args.x, check.code == BP_OP_LINEAR_ACT ? args.x_norm : nullptr);
  const std::int64_t tokens = args.x.shape[0], outputs = check_product(check, args.x, args.weight, args.bias);
  check.activation(args.out, "out", {tokens, outputs});
  if (check.code == BP_OP_LINEAR_ADD) check.activation(args.residual, "residual", {tokens, outputs});
  if (check.code == BP_OP_LINEAR_ACT && args.kind != 0) check_kind(args.kind);
}

// A rotation of x, whatever its arguments say of that.
inline void check_rope(Check& check, const bp_rope_args& args, const bp_tensor& x) {
  check.activation(x, "x", {Check::kAny, Check::kAny, Check::kAny});
  if (args.n_dims % 2 != 0 || args.n_dims > x.shape[2]) {
    check.invalid("n_dims is " + std::to_string(args.n_dims) + " for heads of " + std::to_string(x.shape[2]));
  }
  if (args.interleaved > 1) refuse("interleaved is neither 0 nor 1");
  check.exact(args.pos, "pos", BP_TYPE_I32, {x.shape[0]});
  check.exact(args.row, "row", BP_TYPE_I32, {x.shape[0]});
  check.exact(args.inv_freq, "inv_freq", BP_TYPE_F64, {Check::kAny, args.n_dims / 2});
  check.exact(args.scale, "scale", BP_TYPE_F64, {args.inv_freq.shape[0]});
}

inline void check(Check& check, const bp_rope_args& args) { check_rope(check, args, args.x); }

inline void check(Check& check, const bp_activation_args& args) {
  check_kind(args.kind);
  check.activation_like(args.x, "x", args.x);
  check.activation_like(args.out, "out", args.x);
}

// A gating whose out is this, whatever its arguments say of that.
inline void check_glu(Check& check, const bp_glu_args& args, const bp_tensor& out) {
  check_kind(args.kind);
  check.activation_like(args.gate, "gate", args.gate);
  check.activation_like(args.up, "up", args.gate);
  check.activation_like(out, "out", args.gate);
}

inline void check(Check& check, const bp_glu_args& args) { check_glu(check, args, args.out); }

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
