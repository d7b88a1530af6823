// An op's arguments as a query shows them: types, shapes and options, without memory.
#pragma once

#include "plugins/abi/backplane_plugin.h"

namespace backplane::conformance {

// Owns copies of the structs that the arguments point to.
template <class Args>
class Planned {
 public:
  explicit Planned(const Args& args) : args_(args) { strip(args_); }
  Planned(const Planned&) = delete;
  Planned& operator=(const Planned&) = delete;
  const Args& get() const { return args_; }

 private:
  static void drop(bp_tensor& tensor) {
    tensor.buffer = nullptr;
    tensor.offset = 0;
  }
  static void drop(bp_matrix& matrix) {
    matrix.weight = nullptr;
    drop(matrix.tensor);
  }
  template <class... Parts>
  static void drop_all(Parts&... parts) {
    (drop(parts), ...);
  }
  template <class Nested>
  static const Nested* copy(const Nested* from, Nested& to) {
    if (from) to = *from;
    return from ? &to : nullptr;
  }
  const bp_step* counts(const bp_step* from) {
    if (!copy(from, step_)) return nullptr;
    step_.token = step_.pos = step_.q_start = step_.kv_len = step_.page_table = nullptr;
    step_.slot = nullptr;
    step_.rope_row = step_.out_row = step_.state_slot = nullptr;
    step_.buffer = nullptr;
    return &step_;
  }

  void strip(bp_embed_args& a) { drop_all(a.ids, a.table, a.out); }
  void strip(bp_norm_args& a) { drop_all(a.x, a.weight, a.bias, a.out); }
  void strip(bp_linear_args& a) {
    drop_all(a.x, a.weight, a.bias, a.out, a.residual);
    a.x_norm = stripped(a.x_norm, x_norm_);
  }
  void strip(bp_rope_args& a) { drop_all(a.x, a.pos, a.row, a.inv_freq, a.scale); }
  void strip(bp_kv_write_args& a) {
    drop_all(a.k, a.v, a.k_pages, a.v_pages);
    a.kv = nullptr;
    a.step = counts(a.step);
  }
  void strip(bp_attention_args& a) {
    drop_all(a.q, a.out, a.sinks, a.k_pages, a.v_pages);
    a.kv = nullptr;
    a.step = counts(a.step);
  }
  void strip(bp_activation_args& a) { drop_all(a.x, a.out); }
  void strip(bp_glu_args& a) { drop_all(a.gate, a.up, a.out); }
  void strip(bp_binary_args& a) { drop_all(a.a, a.b, a.out); }
  void strip(bp_scalar_args& a) { drop_all(a.x, a.out); }
  void strip(bp_gather_args& a) { drop_all(a.x, a.index, a.out); }
  void strip(bp_unary_args& a) { drop_all(a.x, a.out); }
  void strip(bp_topk_args& a) { drop_all(a.x, a.ids, a.values); }
  void strip(bp_sample_args& a) {
    drop_all(a.logits, a.temperature, a.top_p, a.min_p, a.top_k, a.seed, a.counter, a.ids);
  }
  void strip(bp_advance_args& a) { drop_all(a.ids, a.target, a.token); }
  void strip(bp_add_norm_args& a) {
    drop_all(a.a, a.b, a.sum);
    a.norm = stripped(a.norm, norm_);
  }
  void strip(bp_qkv_args& a) {
    drop_all(a.x, a.q_weight, a.k_weight, a.v_weight, a.q_bias, a.k_bias, a.v_bias, a.q);
    a.x_norm = stripped(a.x_norm, x_norm_);
    a.q_norm = stripped(a.q_norm, norm_);
    a.k_norm = stripped(a.k_norm, second_norm_);
    a.rope = stripped(a.rope, rope_);
    a.write = stripped(a.write, write_);
  }
  void strip(bp_gateup_args& a) {
    drop_all(a.x, a.gate_weight, a.up_weight, a.gate_bias, a.up_bias, a.out);
    a.x_norm = stripped(a.x_norm, x_norm_);
    a.glu = stripped(a.glu, glu_);
  }
  void strip(bp_head_argmax_args& a) { drop_all(a.x, a.weight, a.bias, a.ids, a.values); }

  template <class Nested>
  const Nested* stripped(const Nested* from, Nested& to) {
    if (!copy(from, to)) return nullptr;
    strip(to);
    return &to;
  }

  Args args_;
  bp_step step_{};
  bp_norm_args norm_{}, second_norm_{}, x_norm_{};
  bp_rope_args rope_{};
  bp_kv_write_args write_{};
  bp_glu_args glu_{};
};

}  // namespace backplane::conformance
