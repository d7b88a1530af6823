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
  linear.shared_bytes = call.stream.device.shared_bytes;
  return linear;
}

// Whether one kernel can read both.
bool are_alike(const Matrix& a, const Matrix& b) {
  return a.type == b.type && a.columns == b.columns && a.vectors == b.vectors && a.step == b.step;
}

// Up to three products of the same activations, in as few launches as their types allow.
void launch_products(const Call& call, LinearCall* products, int count) {
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

// Logits that HEAD_ARGMAX makes at a time where it makes them at all.
constexpr std::int64_t kLogitRows = 128;

// Candidates that blocks of so many logits leave for all rows.
std::uint64_t candidates(std::int64_t rows, std::int64_t vocabulary, std::int64_t each) {
  return plugin::Workspace::checked(static_cast<std::uint64_t>(rows),
                                    static_cast<std::uint64_t>((vocabulary + each - 1) / each));
}

bp_linear_args logits_args(const bp_head_argmax_args& args, const bp_tensor& x, const bp_tensor& logits) {
  return plugin::linear_args(x, args.weight, args.bias, logits);
}

bp_tensor slice(const bp_tensor& tensor, std::int64_t first, std::int64_t count) {
  bp_tensor part = tensor;
  part.offset += static_cast<std::uint64_t>(first * tensor.stride[0]);
  part.shape[0] = count;
  return part;
}

}  // namespace

std::uint64_t workspace_bytes(const bp_qkv_args& args) {
  const auto bytes = [&](const bp_matrix& weight) {
    return workspace_bytes(plugin::linear_args(args.x, weight, bp_tensor{}, bp_tensor{}));
  };
  return std::max({bytes(args.q_weight), bytes(args.k_weight), bytes(args.v_weight)});
}

void run(const Call& call, const bp_qkv_args& args) {
  const plugin::Whole<bp_kv_write_args> whole(args.write);
  const bp_kv_write_args& write = *whole;
  if (plugin::is_empty(args.q)) return;
  plugin::require(heads_follow(args.q) && heads_follow(write.k) && heads_follow(write.v), "gaps between heads");
  LinearCall products[] = {
      product(call, args.x, args.q_weight, args.q_bias, plugin::flat_heads(args.q), "q"),
      product(call, args.x, args.k_weight, args.k_bias, plugin::flat_heads(write.k), "k"),
      product(call, args.x, args.v_weight, args.v_bias, plugin::flat_heads(write.v), "v"),
  };
  take_norm(call, args.x_norm, args.x, products);
  launch_products(call, products, 3);
  HeadsCall heads;
  heads.q = output(args.q, "q");
  heads.heads = args.q.shape[1];
  heads.write = kv_write_call(call, write);
  if (args.rope != nullptr) heads.rope = rope_call(call, *plugin::Whole<bp_rope_args>(args.rope), args.q);
  heads.normalizes_q = args.q_norm != nullptr;
  heads.normalizes_k = args.k_norm != nullptr;
  if (heads.normalizes_q) heads.q_norm = norm_call(*plugin::Whole<bp_norm_args>(args.q_norm), args.q, args.q);
  if (heads.normalizes_k) heads.k_norm = norm_call(*plugin::Whole<bp_norm_args>(args.k_norm), write.k, write.k);
  launch(call, heads);
}

std::uint64_t workspace_bytes(const bp_gateup_args& args) {
  const auto bytes = [&](const bp_matrix& weight) {
    return workspace_bytes(plugin::linear_args(args.x, weight, bp_tensor{}, bp_tensor{}));
  };
  return std::max(bytes(args.gate_weight), bytes(args.up_weight));
}

void run(const Call& call, const bp_gateup_args& args) {
  const plugin::Whole<bp_glu_args> glu(args.glu);
  if (plugin::is_empty(args.out)) return;
  LinearCall products[] = {product(call, args.x, args.gate_weight, args.gate_bias, args.out, "gate"),
                           product(call, args.x, args.up_weight, args.up_bias, glu->up, "up")};
  take_norm(call, args.x_norm, args.x, products);
  auto& [gate, up] = products;
  if (path_of(gate) != LinearPath::kFew || !are_alike(gate.weight, up.weight)) {
    launch_product(call, gate);
    launch_product(call, up);
    bp_glu_args rest = *glu;
    rest.gate = rest.out = args.out;
    run(call, rest);
    return;
  }
  ProductsCall both(gate);
  both.add(up);
  both.purpose = ProductsCall::Purpose::kGate;
  both.kind = glu->kind;
  launch(call, both);
}

std::uint64_t workspace_bytes(const Device& device, const bp_head_argmax_args& args) {
  using plugin::Workspace;
  const std::int64_t rows = args.x.shape[0], vocabulary = args.weight.tensor.shape[0];
  const std::int64_t few = device.deterministic ? rows : std::min(rows, kMostFewTokens);
  const std::uint64_t by_rows =
      Workspace::bytes_for({Workspace::checked(candidates(few, vocabulary, kLargestRows), sizeof(Candidate))});
  if (few == rows) return by_rows;
  const std::uint64_t row =
      Workspace::checked(static_cast<std::uint64_t>(vocabulary), plugin::type_info(device.activation).block_bytes);
  const std::uint64_t logits = Workspace::checked(static_cast<std::uint64_t>(std::min(rows, kLogitRows)), row);
  const std::uint64_t ends = Workspace::checked(candidates(rows, vocabulary, kLogitsOfBlock), sizeof(Candidate));
  const std::uint64_t products = workspace_bytes(logits_args(args, args.x, bp_tensor{}));
  return std::max(by_rows, Workspace::bytes_for({products, logits, ends}));
}

namespace {

LargestCall end_of(const bp_head_argmax_args& args, const Candidate* largest, std::int64_t each) {
  LargestCall end;
  end.candidates = largest;
  end.tokens = args.x.shape[0];
  end.blocks = (args.weight.tensor.shape[0] + each - 1) / each;
  end.ids = vector_of<std::int32_t>(args.ids, "ids");
  end.values = output(args.values, "values").data;
  return end;
}

// More than a few rows: the matrix is read once for many of them, by the kernels of LINEAR, and the largest of what
// these leave is looked for then.
void find_in_logits(const Call& call, const bp_head_argmax_args& args) {
  const std::int64_t rows = args.x.shape[0], vocabulary = args.weight.tensor.shape[0];
  plugin::Workspace room(call.op);
  // Where a LINEAR's workspace is, at the begin.
  if (workspace_bytes(logits_args(args, args.x, bp_tensor{})) != 0) room.take<std::byte>(Blas::kWorkspaceBytes);
  const bp_tensor logits = room.take_tensor(call.stream.device.activation, std::min(rows, kLogitRows), vocabulary);
  auto* largest = room.take<Candidate>(candidates(rows, vocabulary, kLogitsOfBlock));
  const std::int64_t blocks = (vocabulary + kLogitsOfBlock - 1) / kLogitsOfBlock;
  for (std::int64_t first = 0; first < rows; first += kLogitRows) {
    const std::int64_t count = std::min(kLogitRows, rows - first);
    const bp_tensor out = slice(logits, 0, count);
    LinearCall some = product(call, slice(args.x, first, count), args.weight, args.bias, out, "logits");
    launch_product(call, some);
    LogitsCall look;
    look.logits = input(out, "logits");
    look.largest = largest + first * blocks;
    look.tokens = count;
    look.columns = vocabulary;
    launch(call, look);
  }
  launch(call, end_of(args, largest, kLogitsOfBlock));
}

}  // namespace

void run(const Call& call, const bp_head_argmax_args& args) {
  if (plugin::is_empty(args.x)) return;
  const LinearCall all = product(call, args.x, args.weight, args.bias, args.values, "values");
  if (path_of(all) != LinearPath::kFew) return find_in_logits(call, args);
  ProductsCall logits(all);
  logits.purpose = ProductsCall::Purpose::kLargest;
  logits.largest = plugin::Workspace(call.op).take<Candidate>(
      candidates(args.x.shape[0], args.weight.tensor.shape[0], kLargestRows));
  launch(call, logits);
  launch(call, end_of(args, logits.largest, kLargestRows));
}

}  // namespace backplane::cuda
