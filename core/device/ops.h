// The ops a model is written in: one function for each op of the ABI, running where the executor planned it. Shapes and
// formulas: plugins/abi/backplane_plugin.h, section 9. Fused ones run as their parts where the chosen device lacks
// them.
#pragma once

#include <memory>

#include "core/device/executor.h"

namespace backplane::device {

struct Norm {
  Tensor weight;  // absent: 1
  Tensor bias;    // or absent
  double eps = 1e-5;
  double unit_offset = 0;
  std::uint32_t kind = BP_NORM_RMS;
};

struct Linear {
  std::shared_ptr<Weight> weight;  // [N,C]
  Tensor bias;                     // [N] or absent
};

struct Rope {
  Tensor inv_freq;  // f64 [F, n_dims/2]
  Tensor scale;     // f64 [F]
  std::uint32_t n_dims = 0;
  bool interleaved = false;
};

struct Attention {
  std::uint32_t layer = 0;  // of the KV cache
  std::uint32_t group = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t window = 0;
  double scale = 1;
  double softcap = 0;
  Tensor sinks;  // or absent
};

// Single ops. ids come from the step: its tokens, or its positions.
enum class StepIds { kTokens, kPositions };
void embed(Executor& ex, OpName name, StepIds ids, const std::shared_ptr<Weight>& table, const Tensor& out);
void norm(Executor& ex, OpName name, const Tensor& x, const Norm& spec, const Tensor& out);  // may be in place
void linear(Executor& ex, OpName name, const Tensor& x, const Linear& spec, const Tensor& out);
void rope(Executor& ex, OpName name, const Tensor& x, const Rope& spec);  // in place
void kv_write(Executor& ex, OpName name, const Tensor& k, const Tensor& v, const Attention& spec);
// Decoding sequences, then prefilling ones; either may be none.
void attention(Executor& ex, std::uint32_t layer, const Tensor& q, const Attention& spec, const Tensor& out);
void act(Executor& ex, OpName name, const Tensor& x, std::uint32_t kind);                       // in place
void glu(Executor& ex, OpName name, const Tensor& gate, const Tensor& up, std::uint32_t kind);  // into gate
void add(Executor& ex, OpName name, const Tensor& a, const Tensor& b, double alpha = 1);        // into a
void mul(Executor& ex, OpName name, const Tensor& a, const Tensor& b, double alpha = 1);        // into a
void scale(Executor& ex, OpName name, const Tensor& x, double factor);                          // in place
void softcap(Executor& ex, OpName name, const Tensor& x, double cap);                           // in place
void gather_rows(Executor& ex, OpName name, const Tensor& x, std::uint32_t first_row,
                 const Tensor& out);  // step's out_row

// Ops that run on their device or not at all. Of the step's tokens, number targets[r] becomes ids[r] where that isn't
// -1; both are i32 [R], targets a host_table.
void advance(Executor& ex, OpName name, const Tensor& ids, const Tensor& targets);
// Of each row of logits the largest's id and value, see bp_head_argmax_args.
void head_argmax(Executor& ex, OpName name, const Tensor& x, const Linear& spec, const Tensor& ids,
                 const Tensor& values);

// Fused ops.
// x += alpha * (y W^T + bias); `product` is scratch for the unfused form, whose ADD has a name of its own.
void linear_add(Executor& ex, OpName name, OpName add_name, const Tensor& y, const Linear& spec, double alpha,
                const Tensor& x, const Tensor& product);

// What some fused ops read: x, or its norm, which they make themselves. For one call.
struct Input {
  const Tensor& x;
  const Norm* norm;  // or none
  OpName norm_name;
  const Tensor& normed;  // scratch for the norm
};
// out = f(in W^T + bias), f of a BP_ACT_* or, for 0, nothing.
void linear_act(Executor& ex, OpName name, OpName act_name, const Input& in, const Linear& spec, std::uint32_t kind,
                const Tensor& out);

struct Qkv {
  Linear q, k, v;
  const Norm* q_norm = nullptr;  // per head, or none
  const Norm* k_norm = nullptr;
  const Rope* rope = nullptr;  // or none
  Attention attention;
};
// q, k and v are [T, h, D]; k and v are scratch afterwards.
void qkv(Executor& ex, std::uint32_t layer, const Input& in, const Qkv& spec, const Tensor& q, const Tensor& k,
         const Tensor& v);
// gate = f(in Wg^T) * (in Wu^T); up is scratch.
void gateup_glu(Executor& ex, std::uint32_t layer, const Input& in, const Linear& gate_spec, const Linear& up_spec,
                std::uint32_t kind, const Tensor& gate, const Tensor& up);

}  // namespace backplane::device
