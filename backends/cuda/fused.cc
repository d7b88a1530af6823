// The fused ops: products that share their activations in one launch, and what follows them. Where there are too many
// tokens for that, the parts' own kernels.
#include <algorithm>

#include "backends/cuda/ops.h"

namespace backplane::cuda {
namespace {

LinearCall product(const Call& call, const bp_tensor& x, const bp_matrix& weight, const bp_tensor& bias,
                   const bp_tensor& out, const char* name) {
  LinearCall linear;
  linear.activation = call.stream.device.activation;
  linear.weight = matrix_of(weight, name);
  linear.x = input(x, "x");
  linear.out = output(out, name);
  linear.bias = vector_of<const float>(bias, "bias");
  linear.tokens = x.shape[0];
  linear.invariant = call.stream.device.deterministic;
  linear.processors = call.stream.device.processors;
  return linear;
}

// Whether one kernel can read both.
bool are_alike(const Matrix& a, const Matrix& b) {
  return a.type == b.type && a.columns == b.columns && a.vectors == b.vectors && a.step == b.step;
}

// Up to three products of the same activations, in as few launches as their types allow.
void launch_products(const Call& call, const LinearCall* products, int count) {
  if (path_of(products[0]) != LinearPath::kFew) {
    for (int i = 0; i < count; ++i) launch_product(call, products[i]);
    return;
  }
  bool done[3] = {};
  for (int i = 0; i < count; ++i) {
    if (done[i]) continue;
    ProductsCall together(products[i]);
    for (int j = i + 1; j < count; ++j) {
      if (done[j] || !are_alike(products[i].weight, products[j].weight)) continue;
      together.add(products[j]);
      done[j] = true;
    }
    launch(call, together);
  }
}

bool heads_follow(const bp_tensor& heads) {
  return heads.shape[1] <= 1 || heads.stride[1] == heads.shape[2] * heads.stride[2];
}

// Blocks of HEAD_ARGMAX, each of which leaves a candidate for each row.
std::uint64_t candidates(const bp_head_argmax_args& args) {
  const auto blocks = static_cast<std::uint64_t>((args.weight.tensor.shape[0] + kLargestRows - 1) / kLargestRows);
  return plugin::Workspace::checked(static_cast<std::uint64_t>(args.x.shape[0]), blocks);
}

}  // namespace

std::uint64_t workspace_bytes(const bp_qkv_args& args) {
  const auto bytes = [&](const bp_matrix& weight) {
    return workspace_bytes(plugin::linear_args(args.x, weight, bp_tensor{}, bp_tensor{}));
  };
  return std::max({bytes(args.q_weight), bytes(args.k_weight), bytes(args.v_weight)});
}

void run(const Call& call, const bp_qkv_args& args) {
  const bp_kv_write_args write = plugin::part_of(args.write, "the write to the cache");
  if (plugin::is_empty(args.q)) return;
  plugin::require(heads_follow(args.q) && heads_follow(write.k) && heads_follow(write.v), "gaps between heads");
  const LinearCall products[] = {
      product(call, args.x, args.q_weight, args.q_bias, plugin::flat_heads(args.q), "q"),
      product(call, args.x, args.k_weight, args.k_bias, plugin::flat_heads(write.k), "k"),
      product(call, args.x, args.v_weight, args.v_bias, plugin::flat_heads(write.v), "v"),
  };
  launch_products(call, products, 3);
  HeadsCall heads;
  heads.q = output(args.q, "q");
  heads.heads = args.q.shape[1];
  heads.write = kv_write_call(call, write);
  if (args.rope != nullptr) heads.rope = rope_call(call, plugin::rope_of(args, args.q));
  heads.normalizes_q = args.q_norm != nullptr;
  heads.normalizes_k = args.k_norm != nullptr;
  if (heads.normalizes_q) heads.q_norm = norm_call(plugin::head_norm(args.q_norm, args.q));
  if (heads.normalizes_k) heads.k_norm = norm_call(plugin::head_norm(args.k_norm, write.k));
  launch(call, heads);
}

std::uint64_t workspace_bytes(const bp_gateup_args& args) {
  const auto bytes = [&](const bp_matrix& weight) {
    return workspace_bytes(plugin::linear_args(args.x, weight, bp_tensor{}, bp_tensor{}));
  };
  return std::max(bytes(args.gate_weight), bytes(args.up_weight));
}

void run(const Call& call, const bp_gateup_args& args) {
  const bp_glu_args glu = plugin::glu_of(args);
  if (plugin::is_empty(args.out)) return;
  const LinearCall gate = product(call, args.x, args.gate_weight, args.gate_bias, args.out, "gate");
  const LinearCall up = product(call, args.x, args.up_weight, args.up_bias, glu.up, "up");
  if (path_of(gate) != LinearPath::kFew || !are_alike(gate.weight, up.weight)) {
    launch_product(call, gate);
    launch_product(call, up);
    bp_glu_args rest = glu;
    rest.gate = args.out;
    run(call, rest);
    return;
  }
  ProductsCall both(gate);
  both.add(up);
  both.purpose = ProductsCall::Purpose::kGate;
  both.kind = glu.kind;
  launch(call, both);
}

std::uint64_t workspace_bytes(const bp_head_argmax_args& args) {
  return plugin::Workspace::bytes_for({plugin::Workspace::checked(candidates(args), sizeof(Candidate))});
}

void run(const Call& call, const bp_head_argmax_args& args) {
  if (plugin::is_empty(args.x)) return;
  ProductsCall logits(product(call, args.x, args.weight, args.bias, args.values, "values"));
  logits.purpose = ProductsCall::Purpose::kLargest;
  LargestCall end;
  logits.largest = plugin::Workspace(call.op).take<Candidate>(candidates(args));
  end.candidates = logits.largest;
  end.tokens = args.x.shape[0];
  end.blocks = (args.weight.tensor.shape[0] + kLargestRows - 1) / kLargestRows;
  end.ids = vector_of<std::int32_t>(args.ids, "ids");
  end.values = output(args.values, "values").data;
  launch(call, logits);
  launch(call, end);
}

}  // namespace backplane::cuda
