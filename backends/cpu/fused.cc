// Fused ops, by calling their parts: no faster than the parts, and equal to them bit for bit.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/ops.h"

namespace backplane::cpu {
namespace {

template <class Real, class Args>
void run_part(std::uint32_t code, const Workspace& workspace, const Args& args) {
  run<Real>(Call{code, workspace}, args);
}

// What an op with a norm of its x reads.
template <class Real>
void make_x(const Workspace& workspace, const bp_norm_args* x_norm, const bp_tensor& x) {
  if (x_norm != nullptr) run_part<Real>(BP_OP_NORM, workspace, plugin::x_norm_of(x_norm, x));
}

}  // namespace

// LINEAR_ACT

template <class Real>
void run_linear_act(const Call& call, const bp_linear_args& args) {
  make_x<Real>(call.workspace, args.x_norm, args.x);
  run_part<Real>(BP_OP_LINEAR, call.workspace, args);
  if (args.kind == 0) return;
  bp_activation_args act{};
  act.x = act.out = args.out;
  act.kind = args.kind;
  run_part<Real>(BP_OP_ACT, call.workspace, act);
}

// ADD_NORM

template <class Real>
void run(const Call& call, const bp_add_norm_args& args) {
  run_part<Real>(BP_OP_ADD, call.workspace, plugin::add_of(args));
  run_part<Real>(BP_OP_NORM, call.workspace, plugin::norm_of(args));
}

// QKV_ROPE_WRITE

namespace {

// heads = x W^T + bias. Where there are gaps between the heads, one head after another.
template <class Real>
void project(const Workspace& workspace, const bp_tensor& x, const bp_matrix& weight, const bp_tensor& bias,
             const bp_tensor& heads) {
  const std::int64_t dim = heads.shape[2];
  if (heads.shape[1] <= 1 || heads.stride[1] == dim * heads.stride[2]) {
    return run_part<Real>(BP_OP_LINEAR, workspace, plugin::linear_args(x, weight, bias, plugin::flat_heads(heads)));
  }
  for (std::int64_t h = 0; h < heads.shape[1]; ++h) {
    bp_linear_args args = plugin::linear_args(x, weight, bias, heads);
    args.weight.tensor.shape[0] = args.bias.shape[0] = dim;
    args.weight.tensor.offset += static_cast<std::uint64_t>(h * dim * weight.tensor.stride[0]);
    args.bias.offset += static_cast<std::uint64_t>(h * dim * bias.stride[0]);
    args.out.offset += static_cast<std::uint64_t>(h * heads.stride[1]);
    args.out.shape[1] = 1;
    args.out = plugin::flat_heads(args.out);
    run_part<Real>(BP_OP_LINEAR, workspace, args);
  }
}

}  // namespace

std::uint64_t workspace_bytes(const Check& check, const bp_qkv_args& args) {
  const Check part(BP_OP_LINEAR, check.real, check.running);
  return workspace_bytes(part, plugin::linear_args(args.x, args.q_weight, args.q_bias, plugin::flat_heads(args.q)));
}

template <class Real>
void run(const Call& call, const bp_qkv_args& args) {
  const bp_kv_write_args write = plugin::part_of(args.write, "the write to the cache");
  make_x<Real>(call.workspace, args.x_norm, args.x);
  project<Real>(call.workspace, args.x, args.q_weight, args.q_bias, args.q);
  project<Real>(call.workspace, args.x, args.k_weight, args.k_bias, write.k);
  project<Real>(call.workspace, args.x, args.v_weight, args.v_bias, write.v);
  if (args.q_norm != nullptr) run_part<Real>(BP_OP_NORM, call.workspace, plugin::head_norm(args.q_norm, args.q));
  if (args.k_norm != nullptr) run_part<Real>(BP_OP_NORM, call.workspace, plugin::head_norm(args.k_norm, write.k));
  if (args.rope != nullptr) {
    run_part<Real>(BP_OP_ROPE, call.workspace, plugin::rope_of(args, args.q));
    run_part<Real>(BP_OP_ROPE, call.workspace, plugin::rope_of(args, write.k));
  }
  run_part<Real>(BP_OP_KV_WRITE, call.workspace, write);
}

// GATEUP_GLU

std::uint64_t workspace_bytes(const Check& check, const bp_gateup_args& args) {
  const Check part(BP_OP_LINEAR, check.real, check.running);
  return workspace_bytes(part, plugin::linear_args(args.x, args.gate_weight, args.gate_bias, args.out));
}

template <class Real>
void run(const Call& call, const bp_gateup_args& args) {
  const bp_glu_args glu = plugin::glu_of(args);
  make_x<Real>(call.workspace, args.x_norm, args.x);
  run_part<Real>(BP_OP_LINEAR, call.workspace, plugin::linear_args(args.x, args.gate_weight, args.gate_bias, glu.gate));
  run_part<Real>(BP_OP_LINEAR, call.workspace, plugin::linear_args(args.x, args.up_weight, args.up_bias, glu.up));
  run_part<Real>(BP_OP_GLU, call.workspace, glu);
}

// HEAD_ARGMAX

namespace {

constexpr std::int64_t kHeadRows = 8;  // logits of so many rows are kept at a time

bp_tensor rows_of(const bp_tensor& tensor, std::int64_t first, std::int64_t count) {
  bp_tensor part = tensor;
  part.offset += static_cast<std::uint64_t>(first * tensor.stride[0]);
  part.shape[0] = count;
  return part;
}

// A vector [R] as the matrix [R,1] that TOPK takes.
bp_tensor as_column(const bp_tensor& vector) {
  bp_tensor column = vector;
  column.rank = 2;
  column.shape[1] = 1;
  column.stride[1] = plugin::type_info(vector.type).block_bytes;
  return column;
}

// TOPK passes over NaN; here whoever chooses by the result must know.
template <class Real>
void mark_broken_rows(const bp_tensor& logits, const bp_tensor& values) {
  const plugin::View<const Real> in(logits, "logits");
  const plugin::View<Real> out(values, "values");
  for (std::int64_t r = 0; r < in.rows(); ++r) {
    const Real* row = in.row(r);
    const bool broken = std::any_of(row, row + in.columns(), [](Real logit) { return std::isnan(logit); });
    if (broken) *out.row(r) = std::numeric_limits<Real>::quiet_NaN();
  }
}

}  // namespace

std::uint64_t workspace_bytes(const Check& check, const bp_head_argmax_args& args) {
  const std::uint64_t element = plugin::type_info(check.real).block_bytes;
  const std::int64_t vocabulary = args.weight.tensor.shape[0];
  const std::int64_t rows = std::min(kHeadRows, args.x.shape[0]);
  const std::uint64_t logits = Workspace::checked(Workspace::checked(rows, vocabulary), element);
  bp_topk_args topk{};
  topk.x.shape[1] = vocabulary;
  const Check part(BP_OP_LINEAR, check.real, check.running);
  const std::uint64_t parts = std::max(workspace_bytes(part, plugin::linear_args(args.x, args.weight, args.bias, {})),
                                       workspace_bytes(part, topk));
  return Workspace::bytes_for({logits, parts});
}

template <class Real>
void run(const Call& call, const bp_head_argmax_args& args) {
  const std::int64_t rows = args.x.shape[0];
  if (plugin::is_empty(args.x)) return;
  Workspace workspace = call.workspace;
  const bp_tensor logits = workspace.take_tensor(args.x.type, std::min(kHeadRows, rows), args.weight.tensor.shape[0]);
  for (std::int64_t first = 0; first < rows; first += kHeadRows) {
    const std::int64_t count = std::min(kHeadRows, rows - first);
    const bp_tensor out = rows_of(logits, 0, count);
    run_part<Real>(BP_OP_LINEAR, workspace,
                   plugin::linear_args(rows_of(args.x, first, count), args.weight, args.bias, out));
    bp_topk_args topk{};
    topk.x = out;
    topk.ids = as_column(rows_of(args.ids, first, count));
    topk.values = as_column(rows_of(args.values, first, count));
    run_part<Real>(BP_OP_TOPK, workspace, topk);
    mark_broken_rows<Real>(out, topk.values);
  }
}

template void run_linear_act<float>(const Call&, const bp_linear_args&);
template void run_linear_act<double>(const Call&, const bp_linear_args&);
template void run<float>(const Call&, const bp_add_norm_args&);
template void run<double>(const Call&, const bp_add_norm_args&);
template void run<float>(const Call&, const bp_qkv_args&);
template void run<double>(const Call&, const bp_qkv_args&);
template void run<float>(const Call&, const bp_gateup_args&);
template void run<double>(const Call&, const bp_gateup_args&);
template void run<float>(const Call&, const bp_head_argmax_args&);
template void run<double>(const Call&, const bp_head_argmax_args&);

}  // namespace backplane::cpu
