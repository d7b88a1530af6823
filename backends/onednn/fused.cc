// QKV_ROPE_WRITE and GATEUP_GLU: the matrices in one loop, and nothing stored that isn't wanted.
#include <optional>

#include "backends/onednn/product.h"
#include "backends/onednn/rope.h"

namespace backplane::onednn {
namespace {

constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));

// heads = x W^T + bias, [T,h,D] whose heads follow each other.
Product projection(const Matrix& weight, const bp_tensor& bias, const bp_tensor& heads, const char* name) {
  Product product{&weight};
  product.bias = floats_or_null(bias, "bias");
  product.out = View<float>(heads, name).data();
  product.out_stride = heads.stride[0] / kFloat;
  return product;
}

bool heads_follow(const bp_tensor& heads) {
  return heads.shape[1] <= 1 || heads.stride[1] == heads.shape[2] * heads.stride[2];
}

// A norm of every head, where the model has one.
class HeadNorm {
 public:
  HeadNorm(const Device& device, const bp_norm_args* args) : rows_(device.kernels->rows) {
    if (args == nullptr) return;
    args_ = plugin::read_struct(args);
    weight_ = floats_or_null(args_->weight, "weight");
    bias_ = floats_or_null(args_->bias, "bias");
  }
  void operator()(float* head, std::int64_t dim) const {
    if (!args_) return;
    rows_.norm(head, weight_, bias_, dim, args_->kind == BP_NORM_LAYER, static_cast<float>(args_->eps),
               static_cast<float>(args_->unit_offset), head);
  }

 private:
  const RowKernels& rows_;
  std::optional<bp_norm_args> args_;
  const float *weight_ = nullptr, *bias_ = nullptr;
};

}  // namespace

std::uint64_t workspace_bytes(const bp_qkv_args& args) {
  const std::uint64_t rotation =
      args.rope ? Rotation::bytes(plugin::read_struct(args.rope), args.x.shape[0]) : std::uint64_t{0};
  return Workspace::bytes_for({rotation, Activations::bytes(args.x.shape[0], args.x.shape[1]),
                               multiply_bytes(args.x, {&args.q_weight, &args.k_weight, &args.v_weight})});
}

void run(const Call& call, const bp_qkv_args& args) {
  const bp_kv_write_args write = plugin::part_of(args.write, "the write to the cache");
  if (plugin::is_empty(args.q)) return;
  make_x(call, args.x_norm, args.x);
  plugin::require(heads_follow(args.q) && heads_follow(write.k) && heads_follow(write.v), "gaps between heads");
  Workspace workspace = call.workspace;
  std::optional<Rotation> rotation;
  if (args.rope != nullptr) rotation.emplace(plugin::read_struct(args.rope), args.x.shape[0], workspace);
  const CacheWriter writer(call.device, write);
  const Matrix q_weight(args.q_weight, "q_weight"), k_weight(args.k_weight, "k_weight"),
      v_weight(args.v_weight, "v_weight");
  const Product products[] = {projection(q_weight, args.q_bias, args.q, "q"),
                              projection(k_weight, args.k_bias, write.k, "k"),
                              projection(v_weight, args.v_bias, write.v, "v")};
  Activations x(call.device, args.x, workspace);
  multiply(call.device, workspace, x, products);

  const HeadNorm q_norm(call.device, args.q_norm), k_norm(call.device, args.k_norm);
  const View<float> q(args.q, "q"), k(write.k, "k"), v(write.v, "v");
  const auto make_ready = [&](const HeadNorm& norm, std::int64_t t, float* head, std::int64_t dim) {
    norm(head, dim);
    if (rotation) rotation->turn(t, head);
  };
  for_rows(q.shape(0), (q.shape(1) + 2 * k.shape(1)) * q.shape(2), [&](std::int64_t t) {
    if (rotation) rotation->prepare(t);
    for (std::int64_t h = 0; h < q.shape(1); ++h) make_ready(q_norm, t, q.at(t, h), q.shape(2));
    for (std::int64_t h = 0; h < k.shape(1); ++h) {
      make_ready(k_norm, t, k.at(t, h), k.shape(2));
      writer.write(t, h, k.at(t, h), v.at(t, h));
    }
  });
}

std::uint64_t workspace_bytes(const bp_gateup_args& args) {
  return Workspace::bytes_for({Activations::bytes(args.x.shape[0], args.x.shape[1]),
                               multiply_bytes(args.x, {&args.gate_weight, &args.up_weight})});
}

void run(const Call& call, const bp_gateup_args& args) {
  const bp_glu_args glu = plugin::glu_of(args);
  if (plugin::is_empty(args.out)) return;
  make_x(call, args.x_norm, args.x);
  const Matrix gate_weight(args.gate_weight, "gate_weight"), up_weight(args.up_weight, "up_weight");
  Product gate{&gate_weight}, up{&up_weight};
  gate.bias = floats_or_null(args.gate_bias, "gate_bias");
  gate.out = View<float>(args.out, "out").data();
  gate.out_stride = args.out.stride[0] / kFloat;
  up.bias = floats_or_null(args.up_bias, "up_bias");
  up.out = View<float>(glu.up, "up").data();
  up.out_stride = glu.up.stride[0] / kFloat;
  Workspace workspace = call.workspace;
  Activations x(call.device, args.x, workspace);
  multiply_gated(call.device, workspace, x, gate, up, glu.kind);
}

}  // namespace backplane::onednn
