#include "core/device/ops.h"
#include "core/device/ops_bind.h"

namespace backplane::device {
namespace {

// Argument structs of fused ops together with those that they point to: they live and move as one. Only `main` is
// zeroed for everyone; those who bind the others do it for them.
struct LinearActArgs {
  LinearActArgs() : main{} {}
  bp_linear_args main;
  bp_norm_args x_norm;
};

struct QkvArgs {
  QkvArgs() : main{} {}
  bp_qkv_args main;
  bp_norm_args x_norm, q_norm, k_norm;
  bp_rope_args rope;
  bp_kv_write_args write;
};

struct GateupArgs {
  GateupArgs() : main{} {}
  bp_gateup_args main;
  bp_norm_args x_norm;
  bp_glu_args glu;
};

// The op's x. Of an input with a norm, that is the scratch.
bp_tensor bind_input(Binder& b, const Input& in, bp_norm_args& norm, const bp_norm_args*& at) {
  if (in.norm == nullptr) return b.in(in.x);
  bind_norm(b, norm, *in.norm, {b.in(in.x), b.out(in.normed)});
  b.feature(BP_FEATURE_X_NORM);
  at = &norm;
  return norm.out;
}

// The norm as an op, and what the others then read.
Input normalized(Executor& ex, const Input& in) {
  norm(ex, in.norm_name, in.x, *in.norm, in.normed);
  return {in.normed, nullptr, {}, in.normed};
}

}  // namespace

void linear_add(Executor& ex, OpName name, OpName add_name, const Tensor& y, const Linear& spec, double alpha,
                const Tensor& x, const Tensor& product) {
  const auto bind = [&](Binder& b, bp_linear_args& a) {
    a.size = sizeof(a);
    a.x = b.in(y);
    bind_linear(b, spec, a.weight, a.bias);
    a.residual = a.out = b.inout(x);
    a.alpha = alpha;
    if (alpha != 1) b.feature(BP_FEATURE_ALPHA);
  };
  ex.fused<bp_linear_args>(BP_OP_LINEAR_ADD, name, bind, [&] {
    linear(ex, name, y, spec, product);
    add(ex, add_name, x, product, alpha);
  });
}

void linear_act(Executor& ex, OpName name, OpName act_name, const Input& in, const Linear& spec, std::uint32_t kind,
                const Tensor& out) {
  if (in.norm == nullptr && kind == 0) return linear(ex, name, in.x, spec, out);
  const auto bind = [&](Binder& b, LinearActArgs& args) {
    bp_linear_args& m = args.main;
    m.size = sizeof(m);
    m.x = bind_input(b, in, args.x_norm, m.x_norm);
    bind_linear(b, spec, m.weight, m.bias);
    m.out = b.out(out);
    m.kind = kind;
    if (kind != 0) b.feature(activation_feature(kind));
  };
  ex.fused<LinearActArgs>(BP_OP_LINEAR_ACT, name, bind, [&] {
    if (in.norm != nullptr) return linear_act(ex, name, act_name, normalized(ex, in), spec, kind, out);
    linear(ex, name, in.x, spec, out);
    act(ex, act_name, out, kind);
  });
}

void qkv(Executor& ex, std::uint32_t layer, const Input& in, const Qkv& spec, const Tensor& q, const Tensor& k,
         const Tensor& v) {
  const auto flat = [](const Tensor& t) {
    Tensor rows = t;
    rows.rank = 2;
    rows.shape = {t.shape[0], t.shape[1] * t.shape[2], 1, 1};
    rows.stride = {t.stride[0], t.stride[2], 0, 0};
    return rows;
  };
  const auto bind = [&](Binder& b, QkvArgs& args) {
    bp_qkv_args& m = args.main;
    m.size = sizeof(m);
    m.x = bind_input(b, in, args.x_norm, m.x_norm);
    bind_linear(b, spec.q, m.q_weight, m.q_bias);
    bind_linear(b, spec.k, m.k_weight, m.k_bias);
    bind_linear(b, spec.v, m.v_weight, m.v_bias);
    m.q = b.out(q);
    const bp_tensor bound_k = b.out(k), bound_v = b.out(v);
    if (spec.q_norm) bind_norm(b, args.q_norm, *spec.q_norm, {m.q, m.q});
    if (spec.k_norm) bind_norm(b, args.k_norm, *spec.k_norm, {bound_k, bound_k});
    m.q_norm = spec.q_norm ? &args.q_norm : nullptr;
    m.k_norm = spec.k_norm ? &args.k_norm : nullptr;
    if (spec.rope) bind_rope(b, args.rope, *spec.rope, q, m.q);
    m.rope = spec.rope ? &args.rope : nullptr;
    bind_kv_write(b, args.write, spec.attention, bound_k, bound_v, k.last() != v.last());
    m.write = &args.write;
    if (spec.q_norm || spec.k_norm) b.feature(BP_FEATURE_QK_NORM);
    if (!spec.rope) b.feature(BP_FEATURE_NO_ROPE);
  };
  ex.fused<QkvArgs>(BP_OP_QKV_ROPE_WRITE, {"attention.qkv", layer}, bind, [&] {
    if (in.norm != nullptr) return qkv(ex, layer, normalized(ex, in), spec, q, k, v);
    linear(ex, {"attention.q", layer}, in.x, spec.q, flat(q));
    linear(ex, {"attention.k", layer}, in.x, spec.k, flat(k));
    linear(ex, {"attention.v", layer}, in.x, spec.v, flat(v));
    if (spec.q_norm) norm(ex, {"attention.q_norm", layer}, q, *spec.q_norm, q);
    if (spec.k_norm) norm(ex, {"attention.k_norm", layer}, k, *spec.k_norm, k);
    if (spec.rope) rope(ex, {"attention.q_rope", layer}, q, *spec.rope);
    if (spec.rope) rope(ex, {"attention.k_rope", layer}, k, *spec.rope);
    kv_write(ex, {"attention.kv_write", layer}, k, v, spec.attention);
  });
}

void gateup_glu(Executor& ex, std::uint32_t layer, const Input& in, const Linear& gate_spec, const Linear& up_spec,
                std::uint32_t kind, const Tensor& gate, const Tensor& up) {
  const auto bind = [&](Binder& b, GateupArgs& args) {
    bp_gateup_args& m = args.main;
    m.size = sizeof(m);
    m.x = bind_input(b, in, args.x_norm, m.x_norm);
    bind_linear(b, gate_spec, m.gate_weight, m.gate_bias);
    bind_linear(b, up_spec, m.up_weight, m.up_bias);
    m.out = b.out(gate);
    args.glu = {};
    args.glu.size = sizeof(args.glu);
    args.glu.gate = args.glu.out = m.out;
    args.glu.up = b.out(up);
    args.glu.kind = kind;
    m.glu = &args.glu;
    b.feature(activation_feature(kind));
  };
  ex.fused<GateupArgs>(BP_OP_GATEUP_GLU, {"mlp.gateup", layer}, bind, [&] {
    if (in.norm != nullptr) return gateup_glu(ex, layer, normalized(ex, in), gate_spec, up_spec, kind, gate, up);
    linear(ex, {"mlp.gate", layer}, in.x, gate_spec, gate);
    linear(ex, {"mlp.up", layer}, in.x, up_spec, up);
    glu(ex, {"mlp.glu", layer}, gate, up, kind);
  });
}

void advance(Executor& ex, OpName name, const Tensor& ids, const Tensor& targets) {
  ex.optional<bp_advance_args>(BP_OP_ADVANCE, name, [&](Binder& b, bp_advance_args& a) {
    a.size = sizeof(a);
    a.ids = b.exact_in(ids);
    a.target = b.constant(targets);
    a.token = b.token();
  });
}

void head_argmax(Executor& ex, OpName name, const Tensor& x, const Linear& spec, const Tensor& ids,
                 const Tensor& values) {
  ex.optional<bp_head_argmax_args>(BP_OP_HEAD_ARGMAX, name, [&](Binder& b, bp_head_argmax_args& a) {
    a.size = sizeof(a);
    a.x = b.in(x);
    bind_linear(b, spec, a.weight, a.bias);
    a.ids = b.exact_out(ids);
    a.values = b.out(values);
  });
}

}  // namespace backplane::device
