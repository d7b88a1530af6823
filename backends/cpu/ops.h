// The ops. Each has two functions, side by side; the SDK's `check` has seen the types and shapes before:
//   workspace_bytes   what `run` will take from its workspace
//   run<Real>         the op itself, Real being float or double; it still looks at memory and ids
#pragma once

#include <cstdint>

#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::cpu {

using plugin::Check;
using plugin::Parameters;
using plugin::View;
using plugin::Workspace;

// What `run` gets beside the arguments.
struct Call {
  std::uint32_t code;  // BP_OP_*
  Workspace workspace;
};

// FILL, which shares its arguments with SCALE and SOFTCAP.
void fill(const bp_scalar_args& args);

// LINEAR_ACT, which shares its arguments with LINEAR and LINEAR_ADD.
template <class Real>
void run_linear_act(const Call&, const bp_linear_args&);

template <class Args>
std::uint64_t workspace_bytes(const Check&, const Args&) {
  return 0;
}
std::uint64_t workspace_bytes(const Check&, const bp_linear_args&);
std::uint64_t workspace_bytes(const Check&, const bp_attention_args&);
std::uint64_t workspace_bytes(const Check&, const bp_topk_args&);
std::uint64_t workspace_bytes(const Check&, const bp_sample_args&);
std::uint64_t workspace_bytes(const Check&, const bp_qkv_args&);
std::uint64_t workspace_bytes(const Check&, const bp_gateup_args&);
std::uint64_t workspace_bytes(const Check&, const bp_head_argmax_args&);

template <class Real>
void run(const Call&, const bp_embed_args&);
template <class Real>
void run(const Call&, const bp_norm_args&);
template <class Real>
void run(const Call&, const bp_linear_args&);
template <class Real>
void run(const Call&, const bp_rope_args&);
template <class Real>
void run(const Call&, const bp_kv_write_args&);
template <class Real>
void run(const Call&, const bp_attention_args&);
template <class Real>
void run(const Call&, const bp_activation_args&);
template <class Real>
void run(const Call&, const bp_glu_args&);
template <class Real>
void run(const Call&, const bp_binary_args&);
template <class Real>
void run(const Call&, const bp_scalar_args&);
template <class Real>
void run(const Call&, const bp_gather_args&);
template <class Real>
void run(const Call&, const bp_unary_args&);
template <class Real>
void run(const Call&, const bp_topk_args&);
template <class Real>
void run(const Call&, const bp_sample_args&);
template <class Real>
void run(const Call&, const bp_advance_args&);
template <class Real>
void run(const Call&, const bp_add_norm_args&);
template <class Real>
void run(const Call&, const bp_qkv_args&);
template <class Real>
void run(const Call&, const bp_gateup_args&);
template <class Real>
void run(const Call&, const bp_head_argmax_args&);

}  // namespace backplane::cpu
