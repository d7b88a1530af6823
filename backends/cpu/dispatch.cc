#include "backends/cpu/dispatch.h"

#include "backends/cpu/ops.h"

namespace backplane::cpu {
namespace {

constexpr std::uint64_t kActivations = BP_FEATURE_GELU_ERF | BP_FEATURE_GELU_TANH | BP_FEATURE_SILU | BP_FEATURE_RELU;
constexpr std::uint64_t kNorm =
    BP_FEATURE_BIAS | BP_FEATURE_NORM_LAYER | BP_FEATURE_NORM_NO_WEIGHT | BP_FEATURE_NORM_UNIT_OFFSET;
constexpr std::uint64_t kLinear = BP_FEATURE_BIAS | BP_FEATURE_TRANSPOSED;
constexpr std::uint64_t kRope = BP_FEATURE_ROPE_INTERLEAVED | BP_FEATURE_ROPE_PARTIAL;

bool uses_cache(std::uint32_t code) {
  return code == BP_OP_KV_WRITE || code == BP_OP_ATTN_PREFILL || code == BP_OP_ATTN_DECODE ||
         code == BP_OP_QKV_ROPE_WRITE;
}

std::uint64_t own_features(std::uint32_t code) {
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
    case BP_OP_QKV_ROPE_WRITE:
      return kLinear | kNorm | kRope | BP_FEATURE_QK_NORM | BP_FEATURE_NO_ROPE | BP_FEATURE_KV_CANONICAL |
             BP_FEATURE_ATTN_VALUE_DIM;
    case BP_OP_GATEUP_GLU:
      return kLinear | kActivations;
    default:
      return 0;
  }
}

// "LINEAR layers.3.q: why", so that a reason can be read by itself.
std::string titled(std::uint32_t code, const char* name, const char* reason) {
  std::string title = plugin::op_name(code);
  if (name != nullptr) title += std::string(" ") + name;
  return title + ": " + reason;
}

}  // namespace

std::uint64_t features_of(std::uint32_t code) { return BP_FEATURE_STRIDED | own_features(code); }

void answer_query(bp_type real, const bp_op_query& query, bp_support& support) try {
  Check planned(query.code, real, false);
  plugin::visit_args(query.code, query.smallest, [&](const auto& args) { check(planned, args); });
  plugin::visit_args(query.code, query.largest, [&](const auto& args) {
    check(planned, args);
    support.workspace_bytes = workspace_bytes(planned, args);
  });
  support.features = features_of(query.code);
  if ((query.features & ~support.features) != 0) {
    plugin::refuse("unknown features (bits " + std::to_string(query.features & ~support.features) + ")");
  }
  if (uses_cache(query.code) && (query.features & BP_FEATURE_KV_CANONICAL) == 0) {
    plugin::refuse("this device has no KV cache of its own, canonical pages only");
  }
  support.flags = BP_SUPPORT_DETERMINISTIC | BP_SUPPORT_BATCH_INVARIANT;
  support.activation_type = planned.must_cast ? real : bp_type{BP_TYPE_NONE};
  support.accumulator_type = real;
} catch (const plugin::Failure& failure) {
  throw plugin::Failure(failure.status(), titled(query.code, query.name, failure.what()));
}

void run_op(bp_type real, const bp_op& op) try {
  const Call call{op.code, Workspace(op)};
  Check running(op.code, real, true);
  plugin::visit_args(op.code, op.args, [&](const auto& args) {
    check(running, args);
    if (real == BP_TYPE_F64) {
      run<double>(call, args);
    } else {
      run<float>(call, args);
    }
  });
} catch (const plugin::Failure& failure) {
  throw plugin::Failure(failure.status(), titled(op.code, op.name, failure.what()));
}

}  // namespace backplane::cpu
