#include "backends/cpu/dispatch.h"

#include "backends/cpu/ops.h"

namespace backplane::cpu {

void answer_query(bp_type real, const bp_op_query& query, bp_support& support) try {
  Check planned(query.code, real, false);
  plugin::visit_args(query.code, query.smallest, [&](const auto& args) { check(planned, args); });
  plugin::visit_args(query.code, query.largest, [&](const auto& args) {
    check(planned, args);
    support.workspace_bytes = workspace_bytes(planned, args);
  });
  support.features = plugin::features_of(query.code);
  if ((query.features & ~support.features) != 0) {
    plugin::refuse("unknown features (bits " + std::to_string(query.features & ~support.features) + ")");
  }
  if (plugin::uses_cache(query.code) && (query.features & BP_FEATURE_KV_CANONICAL) == 0) {
    plugin::refuse("this device has no KV cache of its own, canonical pages only");
  }
  support.flags = BP_SUPPORT_DETERMINISTIC | BP_SUPPORT_BATCH_INVARIANT;
  support.activation_type = planned.must_cast ? real : bp_type{BP_TYPE_NONE};
  support.accumulator_type = real;
} catch (const plugin::Failure& failure) {
  throw plugin::titled(failure, query.code, query.name);
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
  throw plugin::titled(failure, op.code, op.name);
}

}  // namespace backplane::cpu
