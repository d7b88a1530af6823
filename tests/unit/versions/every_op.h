// Valid arguments for every op of the ABI, with a list of the tensors in them.
#pragma once

#include "tests/unit/cpu/rig.h"

namespace backplane::versions_test {

using cpu_test::Rig;
using Tensors = std::vector<bp_tensor*>;

// A step of two tokens of one sequence, whose keys lie in one page.
struct SmallStep {
  std::int32_t pos[2] = {0, 1}, q_start[2] = {0, 2}, kv_len[1] = {2}, page_table[1] = {0};
  std::int64_t slot[2] = {0, 1};
  bp_step step{};

  SmallStep() {
    step.size = sizeof(step);
    step.tokens = step.rows = step.max_q = step.max_kv = step.page_size = 2;
    step.sequences = step.groups = step.max_pages = 1;
    step.pos = pos;
    step.q_start = q_start;
    step.kv_len = kv_len;
    step.page_table = page_table;
    step.slot = slot;
  }
};

// Calls visit(code, args, tensors) for each op. Unless `tensors` is touched, the args are valid.
template <class Visit>
class EveryOp {
 public:
  EveryOp(Rig& rig, Visit visit) : rig_(rig), visit_(visit) {}

  void call() {
    single_ops();
    memory_ops();
    sampling_ops();
    cache_ops();
    fused_ops();
  }

 private:
  bp_tensor reals(cpu_test::Shape shape) { return rig_.reals(shape); }
  bp_tensor params(std::int64_t n) { return rig_.bytes(BP_TYPE_F32, {n}); }
  bp_tensor ints(cpu_test::Shape shape) { return rig_.bytes(BP_TYPE_I32, shape); }
  bp_matrix matrix(std::int64_t rows, std::int64_t columns) {
    return {nullptr, rig_.bytes(BP_TYPE_F32, {rows, columns})};
  }
  template <class Args>
  static Args make() {
    Args args{};
    args.size = sizeof(args);
    return args;
  }

  bp_norm_args norm_args(cpu_test::Shape shape) {
    auto args = make<bp_norm_args>();
    args.x = reals(shape);
    args.weight = params(shape.back());
    args.bias = params(shape.back());
    args.out = reals(shape);
    args.eps = 1e-5;
    args.kind = BP_NORM_RMS;
    return args;
  }

  bp_rope_args rope_args(const bp_tensor& x) {
    auto args = make<bp_rope_args>();
    args.x = x;
    args.pos = ints({2});
    args.row = ints({2});
    args.inv_freq = rig_.bytes(BP_TYPE_F64, {1, 2});
    args.scale = rig_.bytes(BP_TYPE_F64, {1});
    args.n_dims = 4;
    return args;
  }

  bp_glu_args glu_args() {
    auto args = make<bp_glu_args>();
    args.gate = reals({2, 6});
    args.up = reals({2, 6});
    args.out = args.gate;
    args.kind = BP_ACT_SILU;
    return args;
  }

  bp_kv_write_args write_args() {
    auto args = make<bp_kv_write_args>();
    args.step = &step_.step;
    args.k = reals({2, 1, 4});
    args.v = reals({2, 1, 4});
    args.k_pages = reals({1, 2, 1, 4});
    args.v_pages = reals({1, 2, 1, 4});
    return args;
  }

  void single_ops() {
    auto embed = make<bp_embed_args>();
    embed.ids = ints({2});
    embed.table = matrix(5, 4);
    embed.out = reals({2, 4});
    visit_(BP_OP_EMBED, embed, Tensors{&embed.ids, &embed.table.tensor, &embed.out});
    auto norm = norm_args({2, 4});
    visit_(BP_OP_NORM, norm, Tensors{&norm.x, &norm.weight, &norm.bias, &norm.out});
    auto linear = make<bp_linear_args>();
    linear.x = reals({2, 4});
    linear.weight = matrix(3, 4);
    linear.bias = params(3);
    linear.out = reals({2, 3});
    visit_(BP_OP_LINEAR, linear, Tensors{&linear.x, &linear.weight.tensor, &linear.bias, &linear.out});
    linear.residual = reals({2, 3});
    linear.alpha = 1;
    visit_(BP_OP_LINEAR_ADD, linear,
           Tensors{&linear.x, &linear.weight.tensor, &linear.bias, &linear.out, &linear.residual});
    auto x_norm = norm_args({2, 4});
    auto linear_act = linear;
    linear_act.residual = bp_tensor{};
    linear_act.x_norm = &x_norm;
    linear_act.kind = BP_ACT_RELU;
    visit_(BP_OP_LINEAR_ACT, linear_act,
           Tensors{&linear_act.x, &linear_act.weight.tensor, &linear_act.bias, &linear_act.out, &x_norm.x,
                   &x_norm.weight, &x_norm.bias});
    auto rope = rope_args(reals({2, 1, 4}));
    visit_(BP_OP_ROPE, rope, Tensors{&rope.x, &rope.pos, &rope.row, &rope.inv_freq, &rope.scale});
    auto act = make<bp_activation_args>();
    act.x = reals({2, 4});
    act.out = reals({2, 4});
    act.kind = BP_ACT_RELU;
    visit_(BP_OP_ACT, act, Tensors{&act.x, &act.out});
    auto glu = glu_args();
    visit_(BP_OP_GLU, glu, Tensors{&glu.gate, &glu.up, &glu.out});
    auto binary = make<bp_binary_args>();
    binary.a = reals({2, 4});
    binary.b = reals({2, 4});
    binary.out = reals({2, 4});
    binary.alpha = 1;
    for (const std::uint32_t code : {BP_OP_ADD, BP_OP_MUL})
      visit_(code, binary, Tensors{&binary.a, &binary.b, &binary.out});
    auto scalar = make<bp_scalar_args>();
    scalar.x = reals({2, 4});
    scalar.out = reals({2, 4});
    scalar.value = 2;
    for (const std::uint32_t code : {BP_OP_SCALE, BP_OP_SOFTCAP}) visit_(code, scalar, Tensors{&scalar.x, &scalar.out});
    scalar.x = {};
    visit_(BP_OP_FILL, scalar, Tensors{&scalar.out});
  }

  void memory_ops() {
    auto gather = make<bp_gather_args>();
    gather.x = reals({3, 4});
    gather.index = ints({2});
    gather.out = reals({2, 4});
    visit_(BP_OP_GATHER_ROWS, gather, Tensors{&gather.x, &gather.index, &gather.out});
    auto unary = make<bp_unary_args>();
    unary.x = reals({2, 4});
    unary.out = reals({2, 4});
    for (const std::uint32_t code : {BP_OP_CAST, BP_OP_COPY}) visit_(code, unary, Tensors{&unary.x, &unary.out});
  }

  void sampling_ops() {
    auto topk = make<bp_topk_args>();
    topk.x = reals({2, 5});
    topk.ids = ints({2, 3});
    topk.values = reals({2, 3});
    visit_(BP_OP_TOPK, topk, Tensors{&topk.x, &topk.ids, &topk.values});
    auto sample = make<bp_sample_args>();
    sample.logits = reals({2, 5});
    sample.temperature = rig_.bytes(BP_TYPE_F64, {2});
    sample.top_p = rig_.tensor(BP_TYPE_F64, {2}, {1, 1});
    sample.min_p = rig_.bytes(BP_TYPE_F64, {2});
    sample.top_k = ints({2});
    sample.seed = rig_.bytes(BP_TYPE_U64, {2});
    sample.counter = rig_.bytes(BP_TYPE_U64, {2});
    sample.ids = ints({2});
    visit_(BP_OP_SAMPLE, sample,
           Tensors{&sample.logits, &sample.temperature, &sample.top_p, &sample.min_p, &sample.top_k, &sample.seed,
                   &sample.counter, &sample.ids});
    auto advance = make<bp_advance_args>();
    advance.ids = ints({2});
    advance.target = ints({2});
    advance.token = ints({2});
    visit_(BP_OP_ADVANCE, advance, Tensors{&advance.ids, &advance.target, &advance.token});
    auto head = make<bp_head_argmax_args>();
    head.x = reals({2, 4});
    head.weight = matrix(5, 4);
    head.bias = params(5);
    head.ids = ints({2});
    head.values = reals({2});
    visit_(BP_OP_HEAD_ARGMAX, head, Tensors{&head.x, &head.weight.tensor, &head.bias, &head.ids, &head.values});
  }

  void cache_ops() {
    auto write = write_args();
    visit_(BP_OP_KV_WRITE, write, Tensors{&write.k, &write.v, &write.k_pages, &write.v_pages});
    auto attention = make<bp_attention_args>();
    attention.step = &step_.step;
    attention.q = reals({2, 2, 4});
    attention.out = reals({2, 2, 4});
    attention.sinks = params(2);
    attention.k_pages = write.k_pages;
    attention.v_pages = write.v_pages;
    attention.last_sequence = attention.kv_heads = 1;
    attention.scale = 1;
    for (const std::uint32_t code : {BP_OP_ATTN_PREFILL, BP_OP_ATTN_DECODE}) {
      visit_(code, attention,
             Tensors{&attention.q, &attention.out, &attention.sinks, &attention.k_pages, &attention.v_pages});
    }
  }

  void fused_ops() {
    auto norm = norm_args({2, 4});
    auto add_norm = make<bp_add_norm_args>();
    add_norm.a = reals({2, 4});
    add_norm.b = reals({2, 4});
    add_norm.sum = norm.x;
    add_norm.alpha = 1;
    add_norm.norm = &norm;
    visit_(BP_OP_ADD_NORM, add_norm,
           Tensors{&add_norm.a, &add_norm.b, &add_norm.sum, &norm.weight, &norm.bias, &norm.out});

    auto write = write_args();
    auto qkv = make<bp_qkv_args>();
    qkv.x = reals({2, 4});
    qkv.q = reals({2, 2, 4});
    auto rope = rope_args(qkv.q);
    auto head_norm = norm_args({2, 2, 4});
    qkv.q_weight = matrix(8, 4);
    qkv.k_weight = matrix(4, 4);
    qkv.v_weight = matrix(4, 4);
    qkv.q_bias = params(8);
    qkv.k_bias = params(4);
    qkv.v_bias = params(4);
    qkv.q_norm = qkv.k_norm = &head_norm;
    qkv.x_norm = &norm;
    qkv.rope = &rope;
    qkv.write = &write;
    visit_(BP_OP_QKV_ROPE_WRITE, qkv,
           Tensors{&qkv.x, &qkv.q, &qkv.q_weight.tensor, &qkv.k_weight.tensor, &qkv.v_weight.tensor, &qkv.q_bias,
                   &qkv.k_bias, &qkv.v_bias, &head_norm.weight, &head_norm.bias, &rope.pos, &rope.row, &rope.inv_freq,
                   &rope.scale, &write.k, &write.v, &write.k_pages, &write.v_pages, &norm.x});

    auto glu = glu_args();
    auto gateup = make<bp_gateup_args>();
    gateup.x = reals({2, 4});
    gateup.gate_weight = matrix(6, 4);
    gateup.up_weight = matrix(6, 4);
    gateup.gate_bias = params(6);
    gateup.up_bias = params(6);
    gateup.out = glu.out;
    gateup.glu = &glu;
    gateup.x_norm = &norm;
    visit_(BP_OP_GATEUP_GLU, gateup,
           Tensors{&gateup.x, &gateup.gate_weight.tensor, &gateup.up_weight.tensor, &gateup.gate_bias, &gateup.up_bias,
                   &gateup.out, &glu.gate, &glu.up, &norm.x});
  }

  Rig& rig_;
  Visit visit_;
  SmallStep step_;
};

template <class Visit>
void for_every_op(Rig& rig, Visit visit) {
  EveryOp<Visit>(rig, visit).call();
}

}  // namespace backplane::versions_test
