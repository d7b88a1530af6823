#include "core/device/ops.h"

#include "core/device/ops_bind.h"

namespace backplane::device {

void embed(Executor& ex, OpName name, StepIds ids, const std::shared_ptr<Weight>& table, const Tensor& out) {
  ex.op<bp_embed_args>(BP_OP_EMBED, name, [&](Binder& b, bp_embed_args& a) {
    a.size = sizeof(a);
    a.ids = ids == StepIds::kTokens ? b.token() : b.pos();
    b.matrix(a.table, table, BP_USE_EMBED);
    a.out = b.out(out);
  });
}

void norm(Executor& ex, OpName name, const Tensor& x, const Norm& spec, const Tensor& out) {
  ex.op<bp_norm_args>(BP_OP_NORM, name,
                      [&](Binder& b, bp_norm_args& a) { bind_norm(b, a, spec, bind_pair(b, x, out)); });
}

void linear(Executor& ex, OpName name, const Tensor& x, const Linear& spec, const Tensor& out) {
  ex.op<bp_linear_args>(BP_OP_LINEAR, name, [&](Binder& b, bp_linear_args& a) {
    a.size = sizeof(a);
    a.x = b.in(x);
    bind_linear(b, spec, a.weight, a.bias);
    a.out = b.out(out);
    a.alpha = 1;
  });
}

void rope(Executor& ex, OpName name, const Tensor& x, const Rope& spec) {
  ex.op<bp_rope_args>(BP_OP_ROPE, name, [&](Binder& b, bp_rope_args& a) { bind_rope(b, a, spec, x, b.inout(x)); });
}

void kv_write(Executor& ex, OpName name, const Tensor& k, const Tensor& v, const Attention& spec) {
  ex.op<bp_kv_write_args>(BP_OP_KV_WRITE, name, [&](Binder& b, bp_kv_write_args& a) {
    bind_kv_write(b, a, spec, b.in(k), b.in(v), k.last() != v.last());
  });
}

namespace {

void attention_part(Executor& ex, std::uint32_t code, OpName name, const Tensor& q, const Attention& spec,
                    const Tensor& out, std::uint32_t first, std::uint32_t last, bool keep_out) {
  ex.op<bp_attention_args>(code, name, [&](Binder& b, bp_attention_args& a) {
    a.size = sizeof(a);
    a.step = b.step();
    a.q = b.in(q);
    a.out = keep_out ? b.inout(out) : b.out(out);
    a.sinks = b.constant(spec.sinks);
    b.kv(spec.layer, false, a.kv, a.k_pages, a.v_pages, a.layer);
    a.group = spec.group;
    a.first_sequence = first;
    a.last_sequence = last;
    a.kv_heads = spec.kv_heads;
    a.window = spec.window;
    a.scale = spec.scale;
    a.softcap = spec.softcap;
    if (spec.window) b.feature(BP_FEATURE_ATTN_WINDOW);
    if (spec.softcap > 0) b.feature(BP_FEATURE_ATTN_SOFTCAP);
    if (spec.sinks.present()) b.feature(BP_FEATURE_ATTN_SINKS);
    if (q.last() != out.last()) b.feature(BP_FEATURE_ATTN_VALUE_DIM);
  });
}

void in_place(Executor& ex, std::uint32_t code, OpName name, const Tensor& x, double value) {
  ex.op<bp_scalar_args>(code, name, [&](Binder& b, bp_scalar_args& a) {
    a.size = sizeof(a);
    a.x = a.out = b.inout(x);
    a.value = value;
  });
}

void binary(Executor& ex, std::uint32_t code, OpName name, const Tensor& a_tensor, const Tensor& b_tensor,
            double alpha) {
  ex.op<bp_binary_args>(code, name, [&](Binder& b, bp_binary_args& a) {
    a.size = sizeof(a);
    a.b = b.in(b_tensor);
    a.a = a.out = b.inout(a_tensor);
    a.alpha = alpha;
    if (alpha != 1) b.feature(BP_FEATURE_ALPHA);
  });
}

}  // namespace

void attention(Executor& ex, std::uint32_t layer, const Tensor& q, const Attention& spec, const Tensor& out) {
  const std::uint32_t n_decode = ex.counts().n_decode, all = ex.counts().sequences;
  const bool plan = ex.planning();
  if (plan || n_decode > 0) {
    attention_part(ex, BP_OP_ATTN_DECODE, {"attention.decode", layer}, q, spec, out, 0, n_decode, false);
  } else {
    ex.seek(ex.cursor() + 1);
  }
  if (plan || n_decode < all) {
    attention_part(ex, BP_OP_ATTN_PREFILL, {"attention.prefill", layer}, q, spec, out, plan ? 0 : n_decode, all,
                   n_decode > 0);
  } else {
    ex.seek(ex.cursor() + 1);
  }
}

void act(Executor& ex, OpName name, const Tensor& x, std::uint32_t kind) {
  ex.op<bp_activation_args>(BP_OP_ACT, name, [&](Binder& b, bp_activation_args& a) {
    a.size = sizeof(a);
    a.x = a.out = b.inout(x);
    a.kind = kind;
    b.feature(activation_feature(kind));
  });
}

void glu(Executor& ex, OpName name, const Tensor& gate, const Tensor& up, std::uint32_t kind) {
  ex.op<bp_glu_args>(BP_OP_GLU, name, [&](Binder& b, bp_glu_args& a) {
    a.size = sizeof(a);
    a.up = b.in(up);
    a.gate = a.out = b.inout(gate);
    a.kind = kind;
    b.feature(activation_feature(kind));
  });
}

void add(Executor& ex, OpName name, const Tensor& a, const Tensor& b, double alpha) {
  binary(ex, BP_OP_ADD, name, a, b, alpha);
}
void mul(Executor& ex, OpName name, const Tensor& a, const Tensor& b, double alpha) {
  binary(ex, BP_OP_MUL, name, a, b, alpha);
}
void scale(Executor& ex, OpName name, const Tensor& x, double factor) { in_place(ex, BP_OP_SCALE, name, x, factor); }
void softcap(Executor& ex, OpName name, const Tensor& x, double cap) { in_place(ex, BP_OP_SOFTCAP, name, x, cap); }

void gather_rows(Executor& ex, OpName name, const Tensor& x, std::uint32_t first_row, const Tensor& out) {
  ex.op<bp_gather_args>(BP_OP_GATHER_ROWS, name, [&](Binder& b, bp_gather_args& a) {
    a.size = sizeof(a);
    a.x = b.in(x);
    a.index = b.out_row(first_row, static_cast<std::uint32_t>(out.shape[0]));
    a.out = b.out(out);
  });
}

}  // namespace backplane::device
