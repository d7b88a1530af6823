// Fused ops, by calling their parts: no faster than the parts, and equal to them bit for bit.
#include <algorithm>

#include "backends/cpu/ops.h"

namespace backplane::cpu {
namespace {

// Checks a part as the op that it is.
template <class Args>
void check_part(Check& whole, std::uint32_t code, const Args& args) {
  Check part(code, whole.real, whole.running);
  check(part, args);
  whole.must_cast |= part.must_cast;
}

template <class Real, class Args>
void run_part(std::uint32_t code, const Workspace& workspace, const Args& args) {
  run<Real>(Call{code, workspace}, args);
}

template <class Args>
Args part_of(const Args* args, const char* name) {
  if (args == nullptr) throw plugin::Failure(BP_INVALID, std::string("the arguments of ") + name + " are missing");
  return plugin::read_struct(args);
}

bp_linear_args linear_args(const bp_tensor& x, const bp_matrix& weight, const bp_tensor& bias, const bp_tensor& out) {
  bp_linear_args args{};
  args.x = x;
  args.weight = weight;
  args.bias = bias;
  args.out = out;
  return args;
}

}  // namespace

// ADD_NORM

namespace {

bp_binary_args add_of(const bp_add_norm_args& args) {
  bp_binary_args add{};
  add.a = args.a;
  add.b = args.b;
  add.out = args.sum;
  add.alpha = args.alpha;
  return add;
}

bp_norm_args norm_of(const bp_add_norm_args& args) {
  bp_norm_args norm = part_of(args.norm, "the norm");
  norm.x = args.sum;
  return norm;
}

}  // namespace

void check(Check& check, const bp_add_norm_args& args) {
  check_part(check, BP_OP_ADD, add_of(args));
  check_part(check, BP_OP_NORM, norm_of(args));
}

template <class Real>
void run(const Call& call, const bp_add_norm_args& args) {
  run_part<Real>(BP_OP_ADD, call.workspace, add_of(args));
  run_part<Real>(BP_OP_NORM, call.workspace, norm_of(args));
}

// QKV_ROPE_WRITE

namespace {

// A matrix of heads as LINEAR sees it: [T,h,D] becomes [T,h*D], whose type and shape are all that a check looks at.
bp_tensor flat_heads(const bp_tensor& heads) {
  bp_tensor flat = heads;
  flat.rank = 2;
  flat.shape[1] = heads.shape[1] * heads.shape[2];
  flat.stride[1] = heads.stride[2];
  flat.shape[2] = 1;
  flat.stride[2] = 0;
  return flat;
}

void check_projection(Check& check, const bp_tensor& x, const bp_matrix& weight, const bp_tensor& bias,
                      const bp_tensor& heads, const char* name) {
  check.activation(heads, name, {Check::kAny, Check::kAny, Check::kAny});
  check_part(check, BP_OP_LINEAR, linear_args(x, weight, bias, flat_heads(heads)));
}

// heads = x W^T + bias. Where there are gaps between the heads, one head after another.
template <class Real>
void project(const Workspace& workspace, const bp_tensor& x, const bp_matrix& weight, const bp_tensor& bias,
             const bp_tensor& heads) {
  const std::int64_t dim = heads.shape[2];
  if (heads.shape[1] <= 1 || heads.stride[1] == dim * heads.stride[2]) {
    return run_part<Real>(BP_OP_LINEAR, workspace, linear_args(x, weight, bias, flat_heads(heads)));
  }
  for (std::int64_t h = 0; h < heads.shape[1]; ++h) {
    bp_linear_args args = linear_args(x, weight, bias, heads);
    args.weight.tensor.shape[0] = args.bias.shape[0] = dim;
    args.weight.tensor.offset += static_cast<std::uint64_t>(h * dim * weight.tensor.stride[0]);
    args.bias.offset += static_cast<std::uint64_t>(h * dim * bias.stride[0]);
    args.out.offset += static_cast<std::uint64_t>(h * heads.stride[1]);
    args.out.shape[1] = 1;
    args.out = flat_heads(args.out);
    run_part<Real>(BP_OP_LINEAR, workspace, args);
  }
}

bp_norm_args head_norm(const bp_norm_args* given, const bp_tensor& heads) {
  bp_norm_args norm = part_of(given, "a norm");
  norm.x = norm.out = heads;
  return norm;
}

bp_rope_args rope_of(const bp_qkv_args& args, const bp_tensor& heads) {
  bp_rope_args rope = part_of(args.rope, "the rotation");
  rope.x = heads;
  return rope;
}

}  // namespace

void check(Check& check, const bp_qkv_args& args) {
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

std::uint64_t workspace_bytes(const Check& check, const bp_qkv_args& args) {
  const Check part(BP_OP_LINEAR, check.real, check.running);
  return workspace_bytes(part, linear_args(args.x, args.q_weight, args.q_bias, flat_heads(args.q)));
}

template <class Real>
void run(const Call& call, const bp_qkv_args& args) {
  const bp_kv_write_args write = part_of(args.write, "the write to the cache");
  project<Real>(call.workspace, args.x, args.q_weight, args.q_bias, args.q);
  project<Real>(call.workspace, args.x, args.k_weight, args.k_bias, write.k);
  project<Real>(call.workspace, args.x, args.v_weight, args.v_bias, write.v);
  if (args.q_norm != nullptr) run_part<Real>(BP_OP_NORM, call.workspace, head_norm(args.q_norm, args.q));
  if (args.k_norm != nullptr) run_part<Real>(BP_OP_NORM, call.workspace, head_norm(args.k_norm, write.k));
  if (args.rope != nullptr) {
    run_part<Real>(BP_OP_ROPE, call.workspace, rope_of(args, args.q));
    run_part<Real>(BP_OP_ROPE, call.workspace, rope_of(args, write.k));
  }
  run_part<Real>(BP_OP_KV_WRITE, call.workspace, write);
}

// GATEUP_GLU

namespace {

bp_glu_args glu_of(const bp_gateup_args& args) {
  bp_glu_args glu = part_of(args.glu, "the gating");
  glu.out = args.out;
  return glu;
}

}  // namespace

void check(Check& check, const bp_gateup_args& args) {
  const bp_glu_args glu = glu_of(args);
  check_part(check, BP_OP_LINEAR, linear_args(args.x, args.gate_weight, args.gate_bias, glu.gate));
  check_part(check, BP_OP_LINEAR, linear_args(args.x, args.up_weight, args.up_bias, glu.up));
  check_part(check, BP_OP_GLU, glu);
}

std::uint64_t workspace_bytes(const Check& check, const bp_gateup_args& args) {
  const Check part(BP_OP_LINEAR, check.real, check.running);
  return workspace_bytes(part, linear_args(args.x, args.gate_weight, args.gate_bias, args.out));
}

template <class Real>
void run(const Call& call, const bp_gateup_args& args) {
  const bp_glu_args glu = glu_of(args);
  run_part<Real>(BP_OP_LINEAR, call.workspace, linear_args(args.x, args.gate_weight, args.gate_bias, glu.gate));
  run_part<Real>(BP_OP_LINEAR, call.workspace, linear_args(args.x, args.up_weight, args.up_bias, glu.up));
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

}  // namespace

void check(Check& check, const bp_head_argmax_args& args) {
  check.activation(args.x, "x", {Check::kAny, Check::kAny});
  check.matrix(args.weight, "weight", Check::kAny, args.x.shape[1]);
  const std::int64_t rows = args.x.shape[0], vocabulary = args.weight.tensor.shape[0];
  if (vocabulary == 0 || vocabulary > INT32_MAX) check.invalid("weight has no rows, or more than an id can count");
  check.parameters(args.bias, "bias", vocabulary);
  check.exact(args.ids, "ids", BP_TYPE_I32, {rows});
  check.activation(args.values, "values", {rows});
}

std::uint64_t workspace_bytes(const Check& check, const bp_head_argmax_args& args) {
  const std::uint64_t element = plugin::type_info(check.real).block_bytes;
  const std::int64_t vocabulary = args.weight.tensor.shape[0];
  const std::int64_t rows = std::min(kHeadRows, args.x.shape[0]);
  const std::uint64_t logits = Workspace::checked(Workspace::checked(rows, vocabulary), element);
  bp_topk_args topk{};
  topk.x.shape[1] = vocabulary;
  const Check part(BP_OP_LINEAR, check.real, check.running);
  const std::uint64_t parts =
      std::max(workspace_bytes(part, linear_args(args.x, args.weight, args.bias, {})), workspace_bytes(part, topk));
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
    run_part<Real>(BP_OP_LINEAR, workspace, linear_args(rows_of(args.x, first, count), args.weight, args.bias, out));
    bp_topk_args topk{};
    topk.x = out;
    topk.ids = as_column(rows_of(args.ids, first, count));
    topk.values = as_column(rows_of(args.values, first, count));
    run_part<Real>(BP_OP_TOPK, workspace, topk);
  }
}

template void run<float>(const Call&, const bp_add_norm_args&);
template void run<double>(const Call&, const bp_add_norm_args&);
template void run<float>(const Call&, const bp_qkv_args&);
template void run<double>(const Call&, const bp_qkv_args&);
template void run<float>(const Call&, const bp_gateup_args&);
template void run<double>(const Call&, const bp_gateup_args&);
template void run<float>(const Call&, const bp_head_argmax_args&);
template void run<double>(const Call&, const bp_head_argmax_args&);

}  // namespace backplane::cpu
