// The argument struct of an op, by its code. SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "backplane_call.hpp"

namespace backplane::plugin {

// "LINEAR"; "op" for a code that this header doesn't know.
constexpr const char* op_name(std::uint32_t code) noexcept {
  switch (code) {
    case BP_OP_EMBED:
      return "EMBED";
    case BP_OP_NORM:
      return "NORM";
    case BP_OP_LINEAR:
      return "LINEAR";
    case BP_OP_ROPE:
      return "ROPE";
    case BP_OP_KV_WRITE:
      return "KV_WRITE";
    case BP_OP_ATTN_PREFILL:
      return "ATTN_PREFILL";
    case BP_OP_ATTN_DECODE:
      return "ATTN_DECODE";
    case BP_OP_ACT:
      return "ACT";
    case BP_OP_GLU:
      return "GLU";
    case BP_OP_ADD:
      return "ADD";
    case BP_OP_MUL:
      return "MUL";
    case BP_OP_SCALE:
      return "SCALE";
    case BP_OP_GATHER_ROWS:
      return "GATHER_ROWS";
    case BP_OP_CAST:
      return "CAST";
    case BP_OP_COPY:
      return "COPY";
    case BP_OP_FILL:
      return "FILL";
    case BP_OP_SOFTCAP:
      return "SOFTCAP";
    case BP_OP_TOPK:
      return "TOPK";
    case BP_OP_SAMPLE:
      return "SAMPLE";
    case BP_OP_ADVANCE:
      return "ADVANCE";
    case BP_OP_ADD_NORM:
      return "ADD_NORM";
    case BP_OP_QKV_ROPE_WRITE:
      return "QKV_ROPE_WRITE";
    case BP_OP_GATEUP_GLU:
      return "GATEUP_GLU";
    case BP_OP_LINEAR_ADD:
      return "LINEAR_ADD";
    case BP_OP_HEAD_ARGMAX:
      return "HEAD_ARGMAX";
    case BP_OP_LINEAR_ACT:
      return "LINEAR_ACT";
    default:
      return "op";
  }
}

// A failure that says of which op it is, "LINEAR layers.3.q: why", so that it can be read by itself.
inline Failure titled(const Failure& failure, std::uint32_t code, const char* name) {
  std::string title = op_name(code);
  if (name != nullptr) title += std::string(" ") + name;
  return Failure(failure.status(), title + ": " + failure.what());
}

// Copies of an op's arguments, complete even where the core is older and its struct shorter:
// args_of<bp_linear_args>(op). The caller has looked at the code.
template <class Args>
Args args_of(const bp_op& op) {
  require(op.args != nullptr, "an op without arguments");
  return read_struct(static_cast<const Args*>(op.args));
}

template <class Args>
Args smallest_of(const bp_op_query& query) {
  require(query.smallest != nullptr, "a query without its smallest shapes");
  return read_struct(static_cast<const Args*>(query.smallest));
}

template <class Args>
Args largest_of(const bp_op_query& query) {
  require(query.largest != nullptr, "a query without its largest shapes");
  return read_struct(static_cast<const Args*>(query.largest));
}

// Calls visitor(args) with the struct that belongs to the code, for a visitor with an overload per struct (codes that
// share a struct share the overload). A code unknown here is refused.
template <class Visitor>
decltype(auto) visit_args(std::uint32_t code, const void* args, Visitor&& visitor) {
  require(args != nullptr, "an op without arguments");
  const auto call = [&]<class Args>(std::type_identity<Args>) -> decltype(auto) {
    const auto* given = static_cast<const Args*>(args);
    if (given->size == sizeof(Args)) return std::forward<Visitor>(visitor)(*given);
    const Args whole = read_struct(given);
    return std::forward<Visitor>(visitor)(whole);
  };
  switch (code) {
    case BP_OP_EMBED:
      return call(std::type_identity<bp_embed_args>{});
    case BP_OP_NORM:
      return call(std::type_identity<bp_norm_args>{});
    case BP_OP_LINEAR:
    case BP_OP_LINEAR_ADD:
    case BP_OP_LINEAR_ACT:
      return call(std::type_identity<bp_linear_args>{});
    case BP_OP_ROPE:
      return call(std::type_identity<bp_rope_args>{});
    case BP_OP_KV_WRITE:
      return call(std::type_identity<bp_kv_write_args>{});
    case BP_OP_ATTN_PREFILL:
    case BP_OP_ATTN_DECODE:
      return call(std::type_identity<bp_attention_args>{});
    case BP_OP_ACT:
      return call(std::type_identity<bp_activation_args>{});
    case BP_OP_GLU:
      return call(std::type_identity<bp_glu_args>{});
    case BP_OP_ADD:
    case BP_OP_MUL:
      return call(std::type_identity<bp_binary_args>{});
    case BP_OP_SCALE:
    case BP_OP_SOFTCAP:
    case BP_OP_FILL:
      return call(std::type_identity<bp_scalar_args>{});
    case BP_OP_GATHER_ROWS:
      return call(std::type_identity<bp_gather_args>{});
    case BP_OP_CAST:
    case BP_OP_COPY:
      return call(std::type_identity<bp_unary_args>{});
    case BP_OP_TOPK:
      return call(std::type_identity<bp_topk_args>{});
    case BP_OP_SAMPLE:
      return call(std::type_identity<bp_sample_args>{});
    case BP_OP_ADVANCE:
      return call(std::type_identity<bp_advance_args>{});
    case BP_OP_ADD_NORM:
      return call(std::type_identity<bp_add_norm_args>{});
    case BP_OP_QKV_ROPE_WRITE:
      return call(std::type_identity<bp_qkv_args>{});
    case BP_OP_GATEUP_GLU:
      return call(std::type_identity<bp_gateup_args>{});
    case BP_OP_HEAD_ARGMAX:
      return call(std::type_identity<bp_head_argmax_args>{});
    default:
      refuse("op code " + std::to_string(code) + " is unknown to this plugin");
  }
}

// ---- What an op may use

// Whether an op reads or writes KV pages.
constexpr bool uses_cache(std::uint32_t code) noexcept {
  return code == BP_OP_KV_WRITE || code == BP_OP_ATTN_PREFILL || code == BP_OP_ATTN_DECODE ||
         code == BP_OP_QKV_ROPE_WRITE;
}

namespace op_features {

constexpr std::uint64_t kActivations = BP_FEATURE_GELU_ERF | BP_FEATURE_GELU_TANH | BP_FEATURE_SILU | BP_FEATURE_RELU;
constexpr std::uint64_t kNorm =
    BP_FEATURE_BIAS | BP_FEATURE_NORM_LAYER | BP_FEATURE_NORM_NO_WEIGHT | BP_FEATURE_NORM_UNIT_OFFSET;
constexpr std::uint64_t kLinear = BP_FEATURE_BIAS | BP_FEATURE_TRANSPOSED;
constexpr std::uint64_t kRope = BP_FEATURE_ROPE_INTERLEAVED | BP_FEATURE_ROPE_PARTIAL;

constexpr std::uint64_t of(std::uint32_t code) noexcept {
  switch (code) {
    case BP_OP_EMBED:
      return BP_FEATURE_TRANSPOSED;
    case BP_OP_NORM:
      return kNorm;
    case BP_OP_LINEAR:
    case BP_OP_HEAD_ARGMAX:
      return kLinear;
    case BP_OP_LINEAR_ADD:
      return kLinear | BP_FEATURE_BROADCAST | BP_FEATURE_ALPHA;
    case BP_OP_ROPE:
      return kRope;
    case BP_OP_KV_WRITE:
      return BP_FEATURE_KV_CANONICAL | BP_FEATURE_ATTN_VALUE_DIM;
    case BP_OP_ATTN_PREFILL:
    case BP_OP_ATTN_DECODE:
      return BP_FEATURE_KV_CANONICAL | BP_FEATURE_ATTN_WINDOW | BP_FEATURE_ATTN_SOFTCAP | BP_FEATURE_ATTN_SINKS |
             BP_FEATURE_ATTN_VALUE_DIM;
    case BP_OP_ACT:
    case BP_OP_GLU:
      return kActivations;
    case BP_OP_ADD:
    case BP_OP_MUL:
      return BP_FEATURE_BROADCAST | BP_FEATURE_ALPHA;
    case BP_OP_ADD_NORM:
      return kNorm | BP_FEATURE_BROADCAST | BP_FEATURE_ALPHA;
    case BP_OP_LINEAR_ACT:
      return kLinear | kNorm | kActivations | BP_FEATURE_X_NORM;
    case BP_OP_QKV_ROPE_WRITE:
      return kLinear | kNorm | kRope | BP_FEATURE_X_NORM | BP_FEATURE_QK_NORM | BP_FEATURE_NO_ROPE |
             BP_FEATURE_KV_CANONICAL | BP_FEATURE_ATTN_VALUE_DIM;
    case BP_OP_GATEUP_GLU:
      return kLinear | kNorm | kActivations | BP_FEATURE_X_NORM;
    default:
      return 0;
  }
}

}  // namespace op_features

// All BP_FEATURE_* that this header has for an op: a plugin that honors them all answers so in bp_support.features.
constexpr std::uint64_t features_of(std::uint32_t code) noexcept { return BP_FEATURE_STRIDED | op_features::of(code); }

}  // namespace backplane::plugin
