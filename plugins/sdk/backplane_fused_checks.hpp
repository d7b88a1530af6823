// The same for fused ops, and their parts as the single ops that they are. SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "backplane_cache_checks.hpp"
#include "backplane_op_checks.hpp"

namespace backplane::plugin {

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
  check_part(check, BP_OP_NORM, norm_of(args));
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
  check.activation(heads, name, {Check::kAny, Check::kAny, Check::kAny});
  check_part(check, BP_OP_LINEAR, linear_args(x, weight, bias, flat_heads(heads)));
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
  const bp_kv_write_args write = part_of(args.write, "the write to the cache");
  check_projection(check, args.x, args.q_weight, args.q_bias, args.q, "q");
  check_projection(check, args.x, args.k_weight, args.k_bias, write.k, "k");
  check_projection(check, args.x, args.v_weight, args.v_bias, write.v, "v");
  if (args.q_norm != nullptr) check_part(check, BP_OP_NORM, head_norm(args.q_norm, args.q));
  if (args.k_norm != nullptr) check_part(check, BP_OP_NORM, head_norm(args.k_norm, write.k));
  if (args.rope != nullptr) {
    check_part(check, BP_OP_ROPE, rope_of(args, args.q));
    check_part(check, BP_OP_ROPE, rope_of(args, write.k));
  }
  check_part(check, BP_OP_KV_WRITE, write);
}

inline bp_glu_args glu_of(const bp_gateup_args& args) {
  bp_glu_args glu = part_of(args.glu, "the gating");
  glu.out = args.out;
  return glu;
}

inline void check(Check& check, const bp_gateup_args& args) {
  const bp_glu_args glu = glu_of(args);
  check_part(check, BP_OP_LINEAR, linear_args(args.x, args.gate_weight, args.gate_bias, glu.gate));
  check_part(check, BP_OP_LINEAR, linear_args(args.x, args.up_weight, args.up_bias, glu.up));
  check_part(check, BP_OP_GLU, glu);
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
