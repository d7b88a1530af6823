// EMBED, LINEAR, LINEAR_ADD, LINEAR_ACT and HEAD_ARGMAX.
#include <string>

#include "backends/onednn/product.h"

namespace backplane::onednn {

void run(const Call&, const bp_embed_args& args) {
  const View<const std::int32_t> ids(args.ids, "ids");
  const Matrix table(args.table, "table");
  const View<float> out(args.out, "out");
  for (std::int64_t t = 0; t < out.rows(); ++t) {
    if (ids[t] < 0 || ids[t] >= table.rows()) {
      throw plugin::Failure(BP_INVALID, "token id " + std::to_string(ids[t]) + " is outside a vocabulary of " +
                                            std::to_string(table.rows()));
    }
  }
  for_rows(out.rows(), out.columns(), [&](std::int64_t t) { table.read_row(ids[t], out.at(t)); });
}

std::uint64_t workspace_bytes(const bp_linear_args& args) {
  return Workspace::bytes_for({Activations::bytes(args.x.shape[0], args.x.shape[1], is_head(args.weight) ? 2 : 1),
                               multiply_bytes(args.x, {&args.weight})});
}

void run(const Call& call, const bp_linear_args& args) {
  const Matrix weight(args.weight, "weight");
  const View<float> out(args.out, "out");
  Product product{&weight};
  product.bias = floats_or_null(args.bias, "bias");
  if (plugin::is_empty(args.out)) return;
  if (call.code == BP_OP_LINEAR_ACT) make_x(call, args.x_norm, args.x);
  product.out = out.data();
  product.out_stride = args.out.stride[0] / static_cast<std::int64_t>(sizeof(float));
  if (call.code == BP_OP_LINEAR_ADD) {
    const View<const float> residual(args.residual, "residual");
    product.residual = residual.data();
    product.residual_stride = args.residual.stride[0] / static_cast<std::int64_t>(sizeof(float));
    product.alpha = static_cast<float>(args.alpha);
  }
  Workspace workspace = call.workspace;
  Activations x(call.device, args.x, workspace, is_head(args.weight) ? 2 : 1);
  multiply(call.device, workspace, x, {&product, 1});
  if (call.code != BP_OP_LINEAR_ACT || args.kind == 0) return;
  bp_activation_args act{};
  act.x = act.out = args.out;
  act.kind = args.kind;
  run(call, act);
}

std::uint64_t workspace_bytes(const bp_head_argmax_args& args) {
  const std::int64_t tokens = args.x.shape[0];
  return Workspace::bytes_for({Activations::bytes(tokens, args.x.shape[1], is_head(args.weight) ? 2 : 1),
                               multiply_best_bytes(tokens), multiply_bytes(args.x, {&args.weight})});
}

void run(const Call& call, const bp_head_argmax_args& args) {
  if (args.x.shape[0] == 0) return;
  const Matrix weight(args.weight, "weight");
  const View<std::int32_t> ids(args.ids, "ids");
  const View<float> values(args.values, "values");
  Product product{&weight};
  product.bias = floats_or_null(args.bias, "bias");
  Workspace workspace = call.workspace;
  Activations x(call.device, args.x, workspace, is_head(args.weight) ? 2 : 1);
  multiply_best(call.device, workspace, x, product, ids.data(), values.data());
}

}  // namespace backplane::onednn
