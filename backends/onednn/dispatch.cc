#include "backends/onednn/dispatch.h"

#include <string>

#include "backends/onednn/matrix.h"

namespace backplane::onednn {
namespace {

// Ops with a `run` here.
template <class Args>
concept Runs = requires(const Call& call, const Args& args) {
  run(call, args);
};

// What this device takes of an op, beyond what the SDK has checked.
template <class Args>
void check_device(const Args&, bp_support&) {}

void expect_quantized(const bp_matrix& matrix, bp_support& support) {
  check_matrix_type(matrix);
  // Rounded to 8 bits in blocks of 32, whose scales are floats, before they are multiplied.
  if (format_of(matrix.tensor.type) != nullptr) support.quantized_activation_type = BP_TYPE_I8;
}

void check_device(const bp_embed_args& args, bp_support&) { check_matrix_type(args.table); }
void expect_head(const bp_matrix& matrix, bp_support& support) {
  expect_quantized(matrix, support);
  const bool twice = support.quantized_activation_type == BP_TYPE_I8 && is_head(matrix);
  if (twice) support.quantized_activation_type = BP_TYPE_I16;
}
void check_device(const bp_linear_args& args, bp_support& support) { expect_head(args.weight, support); }
void check_device(const bp_head_argmax_args& args, bp_support& support) { expect_head(args.weight, support); }
void check_device(const bp_gateup_args& args, bp_support& support) {
  expect_quantized(args.gate_weight, support);
  expect_quantized(args.up_weight, support);
}
void check_device(const bp_qkv_args& args, bp_support& support) {
  for (const bp_matrix* weight : {&args.q_weight, &args.k_weight, &args.v_weight}) expect_quantized(*weight, support);
  const bp_kv_write_args write = plugin::part_of(args.write, "the write to the cache");
  for (const bp_tensor* heads : {&args.q, &write.k, &write.v}) {
    if (heads->shape[1] > 1 && heads->stride[1] != heads->shape[2] * heads->stride[2]) {
      plugin::refuse("gaps between heads");
    }
  }
}

bool is_known(const bp_op_query& query) {
  return query.code != BP_OP_FILL && query.code != BP_OP_CAST && query.code != BP_OP_COPY;
}

}  // namespace

void answer_query(const Device&, const bp_op_query& query, bp_support& support) try {
  plugin::Check planned(query.code, BP_TYPE_F32, false, true);
  plugin::visit_args(query.code, query.smallest, [&](const auto& args) { check(planned, args); });
  plugin::visit_args(query.code, query.largest, [&]<class Args>(const Args& args) {
    check(planned, args);
    if constexpr (Runs<Args>) {
      if (!is_known(query)) plugin::refuse("no such op here");
      check_device(args, support);
      support.workspace_bytes = workspace_bytes(args);
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
  support.flags = BP_SUPPORT_DETERMINISTIC | BP_SUPPORT_BATCH_INVARIANT;
  support.activation_type = planned.must_cast ? bp_type{BP_TYPE_F32} : bp_type{BP_TYPE_NONE};
  support.accumulator_type = BP_TYPE_F32;
} catch (const plugin::Failure& failure) {
  throw plugin::titled(failure, query.code, query.name);
}

void run_op(const Device& device, const bp_op& op) try {
  const Call call{device, op.code, Workspace(op)};
  plugin::Check running(op.code, BP_TYPE_F32, true, true);
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

}  // namespace backplane::onednn
