// The same for fused ops, and their parts as the single ops that they are. SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "backplane_cache_checks.hpp"
#include "backplane_op_checks.hpp"

namespace backplane::plugin {

inline bp_linear_args linear_args(const bp_tensor& x, const bp_matrix& weight, const bp_tensor& bias,
                                  const bp_tensor& out) {
  bp_linear_args args{};
  args.x = x;
  args.weight = weight;
  args.bias = bias;
  args.out = out;
  return args;
}

inline bp_binary_args add_of(const bp_add_norm_args& args) {
  bp_binary_args add{};
  add.a = args.a;
  add.b = args.b;
  add.out = args.sum;
  add.alpha = args.alpha;
  return add;
}

inline bp_norm_args norm_of(const bp_add_norm_args& args) {
  bp_norm_args norm = part_of(args.norm, "the norm");
  norm.x = args.sum;
  return norm;
}

inline void check(Check& check, const bp_add_norm_args& args) {
  check_part(check, BP_OP_ADD, add_of(args));
  const Whole<bp_norm_args> norm = whole_part(args.norm, "the norm");
  check_norm(check, *norm, args.sum, norm->out);
}

// A matrix of heads as LINEAR sees it: [T,h,D] becomes [T,h*D], whose type and shape are all that a check looks at.
inline bp_tensor flat_heads(const bp_tensor& heads) {
  bp_tensor flat = heads;
  flat.rank = 2;
  flat.shape[1] = heads.shape[1] * heads.shape[2];
  flat.stride[1] = heads.stride[2];
  flat.shape[2] = 1;
  flat.stride[2] = 0;
  return flat;
}

inline void check_projection(Check& check, const bp_tensor& x, const bp_matrix& weight, const bp_tensor& bias,
                             const bp_tensor& heads, const char* name) {
  check.activation(heads, name, {x.shape[0], Check::kAny, Check::kAny});
  const std::int64_t outputs = check_product(check, x, weight, bias);
  if (heads.shape[1] * heads.shape[2] != outputs) {
    check.invalid(std::string(name) + " has " + std::to_string(heads.shape[1]) + " heads of " +
                  std::to_string(heads.shape[2]) + " for a matrix of " + std::to_string(outputs) + " rows");
  }
}

inline bp_norm_args head_norm(const bp_norm_args* given, const bp_tensor& heads) {
  bp_norm_args norm = part_of(given, "a norm");
  norm.x = norm.out = heads;
  return norm;
}

inline bp_rope_args rope_of(const bp_qkv_args& args, const bp_tensor& heads) {
  bp_rope_args rope = part_of(args.rope, "the rotation");
  rope.x = heads;
  return rope;
}

inline void check(Check& check, const bp_qkv_args& args) {
  const Whole<bp_kv_write_args> write = whole_part(args.write, "the write to the cache");
  check_x(check, args.x, args.x_norm);
  check_projection(check, args.x, args.q_weight, args.q_bias, args.q, "q");
  check_projection(check, args.x, args.k_weight, args.k_bias, write->k, "k");
  check_projection(check, args.x, args.v_weight, args.v_bias, write->v, "v");
  if (args.q_norm != nullptr) check_norm(check, *Whole<bp_norm_args>(args.q_norm), args.q, args.q);
  if (args.k_norm != nullptr) check_norm(check, *Whole<bp_norm_args>(args.k_norm), write->k, write->k);
  if (args.rope != nullptr) {
    const Whole<bp_rope_args> rope(args.rope);
    check_rope(check, *rope, args.q);
    check_rope(check, *rope, write->k);
  }
  check_part(check, BP_OP_KV_WRITE, *write);
}

inline bp_glu_args glu_of(const bp_gateup_args& args) {
  bp_glu_args glu = part_of(args.glu, "the gating");
  glu.out = args.out;
  return glu;
}

inline void check(Check& check, const bp_gateup_args& args) {
  const Whole<bp_glu_args> glu = whole_part(args.glu, "the gating");
  check_x(check, args.x, args.x_norm);
  const std::int64_t tokens = args.x.shape[0];
  check.activation(glu->gate, "gate", {tokens, check_product(check, args.x, args.gate_weight, args.gate_bias)});
  check.activation(glu->up, "up", {tokens, check_product(check, args.x, args.up_weight, args.up_bias)});
  check_glu(check, *glu, args.out);
}

inline void check(Check& check, const bp_head_argmax_args& args) {
  check.activation(args.x, "x", {Check::kAny, Check::kAny});
  check.matrix(args.weight, "weight", Check::kAny, args.x.shape[1]);
  const std::int64_t rows = args.x.shape[0], vocabulary = args.weight.tensor.shape[0];
  if (vocabulary == 0 || vocabulary > INT32_MAX) check.invalid("weight has no rows, or more than an id can count");
  check.parameters(args.bias, "bias", vocabulary);
  check.exact(args.ids, "ids", BP_TYPE_I32, {rows});
  check.activation(args.values, "values", {rows});
}

}  // namespace backplane::plugin
