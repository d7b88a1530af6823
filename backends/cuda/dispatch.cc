#include "backends/cuda/dispatch.h"

#include <string>

#include "backends/cuda/ops.h"

namespace backplane::cuda {
namespace {

constexpr std::int64_t kMostTop = 64;  // the k of TOPK, which takes a turn over the row for each

// Ops with a `run` here.
template <class Args>
concept Runs = requires(const Call& call, const Args& args) {
  run(call, args);
};

// What this device takes of an op, beyond what the SDK has checked.
template <class Args>
void check_device(const Args&) {}

void check_matrix(const bp_matrix& matrix) {
  const bp_type type = matrix.tensor.type;
  if (!is_weight_type(type)) plugin::refuse(std::string("weights in ") + plugin::type_info(type).name);
}
void check_device(const bp_embed_args& args) { check_matrix(args.table); }
void check_device(const bp_linear_args& args) { check_matrix(args.weight); }
void check_device(const bp_gateup_args& args) {
  check_matrix(args.gate_weight);
  check_matrix(args.up_weight);
}
void check_device(const bp_head_argmax_args& args) { check_matrix(args.weight); }
void check_device(const bp_qkv_args& args) {
  check_matrix(args.q_weight);
  check_matrix(args.k_weight);
  check_matrix(args.v_weight);
  if (args.q.shape[2] > kMostHeadDim || args.write->v.shape[2] > kMostHeadDim) {
    plugin::refuse("heads of more than " + std::to_string(kMostHeadDim));
  }
}
void check_device(const bp_attention_args& args) {
  if (args.q.shape[2] > kMostHeadDim || args.out.shape[2] > kMostHeadDim) {
    plugin::refuse("heads of more than " + std::to_string(kMostHeadDim));
  }
}
void check_device(const bp_topk_args& args) {
  if (args.ids.shape[1] > kMostTop) plugin::refuse("more than the " + std::to_string(kMostTop) + " largest");
}

// Which kernel a product or a prompt's attention takes, and with it the order of its sums, goes by the number of tokens
// unless the user asked for more.
bool is_batch_invariant(const Device& device, std::uint32_t code) {
  switch (code) {
    case BP_OP_LINEAR:
    case BP_OP_LINEAR_ADD:
    case BP_OP_LINEAR_ACT:
    case BP_OP_QKV_ROPE_WRITE:
    case BP_OP_GATEUP_GLU:
    case BP_OP_HEAD_ARGMAX:
    case BP_OP_ATTN_PREFILL:
      return device.deterministic;
    default:
      return true;
  }
}

}  // namespace

void answer_query(const Device& device, const bp_op_query& query, bp_support& support) try {
  plugin::Check planned(query.code, device.activation, false, true);
  plugin::visit_args(query.code, query.smallest, [&](const auto& args) { check(planned, args); });
  plugin::visit_args(query.code, query.largest, [&]<class Args>(const Args& args) {
    check(planned, args);
    if constexpr (Runs<Args>) {
      check_device(args);
      if constexpr (std::is_same_v<Args, bp_unary_args>) check_cast(query.code, args);
      support.workspace_bytes = workspace_bytes(device, args);
    } else {
      plugin::refuse("no such op here");
    }
  });
  support.features = plugin::features_of(query.code) & ~std::uint64_t{BP_FEATURE_KV_CANONICAL};
  if ((query.features & ~support.features) != 0) {
    plugin::refuse((query.features & BP_FEATURE_KV_CANONICAL) != 0
                       ? "pages in the cache's own layout only"
                       : "unknown features (bits " + std::to_string(query.features & ~support.features) + ")");
  }
  support.flags = BP_SUPPORT_CAPTURE_SAFE | BP_SUPPORT_DETERMINISTIC;
  if (is_batch_invariant(device, query.code)) support.flags |= BP_SUPPORT_BATCH_INVARIANT;
  support.activation_type = planned.must_cast ? device.activation : bp_type{BP_TYPE_NONE};
  support.accumulator_type = BP_TYPE_F32;
} catch (const plugin::Failure& failure) {
  throw plugin::titled(failure, query.code, query.name);
}

void run_op(Stream& stream, bp_context context, const bp_op& op) try {
  const Call call{stream, context, op};
  plugin::Check running(op.code, stream.device.activation, true, true);
  plugin::visit_args(op.code, op.args, [&]<class Args>(const Args& args) {
    check(running, args);
    if constexpr (Runs<Args>) {
      run(call, args);
    } else {
      plugin::refuse("no such op here");
    }
  });
} catch (const plugin::Failure& failure) {
  throw plugin::titled(failure, op.code, op.name);
}

}  // namespace backplane::cuda
