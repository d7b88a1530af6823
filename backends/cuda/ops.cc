// The ops that read no cache.
#include "backends/cuda/ops.h"

#include <string>

namespace backplane::cuda {
namespace {

// One row for all of a's, whatever its dimensions, or a row for each.
Rows second_operand(const bp_tensor& b, const bp_tensor& a) {
  Rows rows = input(b, "b");
  if (plugin::row_count(b) == 1 && plugin::row_count(a) != 1) {
    rows.flat = true;
    rows.inner_stride = 0;
  }
  return rows;
}

ElementwiseCall elementwise(Elementwise op, const bp_tensor& x, const bp_tensor& out) {
  ElementwiseCall kernel;
  kernel.op = op;
  kernel.a = input(x, "x");
  kernel.out = output(out, "out");
  kernel.rows = plugin::row_count(x);
  kernel.columns = plugin::row_length(x);
  return kernel;
}

}  // namespace

Rows rows_at(const bp_tensor& tensor, void* data) {
  Rows rows;
  rows.data = static_cast<std::byte*>(data);
  const std::uint32_t rank = tensor.rank;
  if (rank >= 2) {
    rows.inner = tensor.shape[rank - 2];
    rows.inner_stride = tensor.stride[rank - 2];
  }
  if (rank >= 3) {
    rows.middle = tensor.shape[rank - 3];
    rows.middle_stride = tensor.stride[rank - 3];
  }
  if (rank >= 4) rows.outer_stride = tensor.stride[rank - 4];
  const bool follow = rows.middle == 1 || rows.middle_stride == rows.inner * rows.inner_stride;
  rows.flat = follow && (rank < 4 || tensor.shape[0] == 1 || rows.outer_stride == rows.middle * rows.middle_stride);
  return rows;
}

Matrix matrix_of(const bp_matrix& given, const char* name) {
  const bp_tensor& tensor = given.tensor;
  if (given.weight != nullptr) {
    const Weight& weight = weight_of(given.weight);
    plugin::require(weight.finished, "a weight before its finish");
    const Matrix& whole = weight.matrix;
    if (whole.rows != tensor.shape[0] || whole.columns != tensor.shape[1] || whole.type != tensor.type) {
      throw plugin::Failure(BP_INVALID, std::string(name) + ": the weight has another type or shape than its tensor");
    }
    return whole;
  }
  Matrix matrix;
  matrix.type = tensor.type;
  matrix.rows = tensor.shape[0];
  matrix.columns = tensor.shape[1];
  plugin::require(!plugin::is_quantized(tensor.type), "a quantized matrix that wasn't imported");
  matrix.pitch = tensor.stride[0];
  matrix.step = tensor.stride[1];
  const std::int64_t element = plugin::type_info(tensor.type).block_bytes;
  plugin::require(matrix.step % element == 0, "a matrix is not aligned to its elements");
  if (plugin::is_empty(tensor)) return matrix;
  matrix.data = plugin::data_of<const std::byte>(tensor);
  const auto address = reinterpret_cast<std::uintptr_t>(matrix.data);
  plugin::require(
      address % static_cast<std::uintptr_t>(element) == 0 && (matrix.rows == 1 || matrix.pitch % element == 0),
      "a matrix is not aligned to its elements");
  matrix.vectors = matrix.step == element && address % 16 == 0 && (matrix.columns * element) % 16 == 0 &&
                   (matrix.rows == 1 || matrix.pitch % 16 == 0);
  return matrix;
}

void run(const Call& call, const bp_embed_args& args) {
  EmbedCall kernel;
  kernel.table = matrix_of(args.table, "table");
  kernel.ids = vector_of<const std::int32_t>(args.ids, "ids");
  kernel.out = output(args.out, "out");
  kernel.tokens = args.ids.shape[0];
  kernel.fault = call.stream.fault;
  launch(call, kernel);
}

std::uint64_t workspace_bytes(const bp_linear_args& args) {
  const bp_type type = args.weight.tensor.type;
  const bool plain = type == BP_TYPE_F32 || type == BP_TYPE_BF16;
  return plain && args.x.shape[0] >= kFewestBlasTokens ? Blas::kWorkspaceBytes + plugin::kHostAlignment : 0;
}

namespace {

// False where it has to be one of our own kernels.
bool multiply_by_blas(const Call& call, const LinearCall& product) {
  const std::uint64_t needed = Blas::kWorkspaceBytes + plugin::kHostAlignment;
  if (path_of(product) != LinearPath::kBlas || product.weight.rows == 0) return false;
  if (call.op.workspace == nullptr || call.op.workspace_bytes < needed) return false;
  auto* room = plugin::Workspace(call.op).take<std::byte>(Blas::kWorkspaceBytes);
  Stream& stream = call.stream;
  if (!stream.device.blas.multiply(stream.handle, product, room, Blas::kWorkspaceBytes, stream.is_recording()))
    return false;
  plugin::took(call.context, kernel_name(product));
  return true;
}

}  // namespace

void launch_product(const Call& call, LinearCall& product) {
  product.activation = call.stream.device.activation;
  product.blas = true;
  if (multiply_by_blas(call, product)) {
    if (product.kind == 0 || product.tokens == 0) return;
    ElementwiseCall rest;
    rest.activation = product.activation;
    rest.op = Elementwise::kActivate;
    rest.kind = product.kind;
    rest.a = rest.out = product.out;
    rest.rows = product.tokens;
    rest.columns = product.weight.rows;
    return check(enqueue(call.stream.handle, rest), "a kernel's launch");
  }
  product.blas = false;
  launch(call, product);
}

void take_norm(const Call& call, const bp_norm_args* x_norm, const bp_tensor& x, std::span<LinearCall> products) {
  if (x_norm == nullptr) return;
  const plugin::Whole<bp_norm_args> args(x_norm);
  NormCall norm = norm_call(*args, args->x, x);
  if (path_of(products[0]) != LinearPath::kFew) {
    norm.activation = call.stream.device.activation;
    return check(enqueue(call.stream.handle, norm), "a kernel's launch");
  }
  for (LinearCall& product : products) {
    product.x_norm = {norm.x, norm.weight, norm.bias, norm.eps, norm.unit_offset, norm.layer};
  }
}

void run(const Call& call, const bp_linear_args& args) {
  LinearCall kernel;
  kernel.weight = matrix_of(args.weight, "weight");
  kernel.x = input(args.x, "x");
  kernel.out = output(args.out, "out");
  kernel.bias = vector_of<const float>(args.bias, "bias");
  if (call.op.code == BP_OP_LINEAR_ADD) {
    kernel.residual = input(args.residual, "residual");
    kernel.alpha = static_cast<float>(args.alpha);
  }
  kernel.tokens = args.x.shape[0];
  kernel.invariant = call.stream.device.deterministic;
  kernel.processors = call.stream.device.processors;
  kernel.shared_bytes = call.stream.device.shared_bytes;
  if (call.op.code == BP_OP_LINEAR_ACT) {
    kernel.kind = args.kind;
    take_norm(call, args.x_norm, args.x, {&kernel, 1});
  }
  launch_product(call, kernel);
}

NormCall norm_call(const bp_norm_args& args, const bp_tensor& x, const bp_tensor& out) {
  NormCall kernel;
  kernel.x = input(x, "x");
  kernel.out = output(out, "out");
  kernel.weight = vector_of<const float>(args.weight, "weight");
  kernel.bias = vector_of<const float>(args.bias, "bias");
  kernel.eps = static_cast<float>(args.eps);
  kernel.unit_offset = static_cast<float>(args.unit_offset);
  kernel.layer = args.kind == BP_NORM_LAYER;
  kernel.rows = plugin::row_count(x);
  kernel.columns = plugin::row_length(x);
  return kernel;
}

void run(const Call& call, const bp_norm_args& args) { launch(call, norm_call(args, args.x, args.out)); }

void run(const Call& call, const bp_add_norm_args& args) {
  const plugin::Whole<bp_norm_args> norm(args.norm);
  NormCall kernel = norm_call(*norm, args.sum, norm->out);
  kernel.a = input(args.a, "a");
  kernel.b = second_operand(args.b, args.a);
  kernel.sum = output(args.sum, "sum");
  kernel.alpha = static_cast<float>(args.alpha);
  launch(call, kernel);
}

RopeCall rope_call(const Call& call, const bp_rope_args& args, const bp_tensor& x) {
  RopeCall kernel;
  kernel.x = output(x, "x");
  kernel.pos = vector_of<const std::int32_t>(args.pos, "pos");
  kernel.row = vector_of<const std::int32_t>(args.row, "row");
  kernel.inv_freq = vector_of<const double>(args.inv_freq, "inv_freq");
  kernel.inv_freq_stride = args.inv_freq.stride[0];
  kernel.scale = vector_of<const double>(args.scale, "scale");
  kernel.tables = args.inv_freq.shape[0];
  kernel.tokens = x.shape[0];
  kernel.heads = x.shape[1];
  kernel.n_dims = static_cast<std::int32_t>(args.n_dims);
  kernel.interleaved = args.interleaved != 0;
  kernel.fault = call.stream.fault;
  return kernel;
}

void run(const Call& call, const bp_rope_args& args) { launch(call, rope_call(call, args, args.x)); }

void run(const Call& call, const bp_activation_args& args) {
  ElementwiseCall kernel = elementwise(Elementwise::kActivate, args.x, args.out);
  kernel.kind = args.kind;
  launch(call, kernel);
}

void run(const Call& call, const bp_glu_args& args) {
  ElementwiseCall kernel = elementwise(Elementwise::kGate, args.gate, args.out);
  kernel.b = input(args.up, "up");
  kernel.kind = args.kind;
  launch(call, kernel);
}

void run(const Call& call, const bp_binary_args& args) {
  const Elementwise op = call.op.code == BP_OP_ADD ? Elementwise::kAdd : Elementwise::kMul;
  ElementwiseCall kernel = elementwise(op, args.a, args.out);
  kernel.b = second_operand(args.b, args.a);
  kernel.value = static_cast<float>(args.alpha);
  launch(call, kernel);
}

void run(const Call& call, const bp_scalar_args& args) {
  if (call.op.code == BP_OP_FILL) return fill(call, args);
  const Elementwise op = call.op.code == BP_OP_SCALE ? Elementwise::kScale : Elementwise::kSoftcap;
  ElementwiseCall kernel = elementwise(op, args.x, args.out);
  kernel.value = static_cast<float>(args.value);
  launch(call, kernel);
}

void run(const Call& call, const bp_gather_args& args) {
  GatherCall kernel;
  kernel.x = rows_of<const std::byte>(args.x, "x");
  kernel.out = rows_of<std::byte>(args.out, "out");
  kernel.index = vector_of<const std::int32_t>(args.index, "index");
  kernel.rows = args.index.shape[0];
  kernel.row_bytes = static_cast<std::int64_t>(
      plugin::row_bytes(args.out.type, static_cast<std::uint64_t>(args.out.shape[1])).value_or(0));
  kernel.sources = args.x.shape[0];
  kernel.fault = call.stream.fault;
  launch(call, kernel);
}

void run(const Call& call, const bp_topk_args& args) {
  TopkCall kernel;
  kernel.x = input(args.x, "x");
  kernel.ids = rows_of<std::int32_t>(args.ids, "ids");
  kernel.values = output(args.values, "values");
  kernel.rows = args.x.shape[0];
  kernel.columns = args.x.shape[1];
  kernel.k = args.ids.shape[1];
  launch(call, kernel);
}

void run(const Call& call, const bp_advance_args& args) {
  AdvanceCall kernel;
  kernel.ids = vector_of<const std::int32_t>(args.ids, "ids");
  kernel.target = vector_of<const std::int32_t>(args.target, "target");
  kernel.token = vector_of<std::int32_t>(args.token, "token");
  kernel.rows = args.ids.shape[0];
  kernel.tokens = args.token.shape[0];
  kernel.fault = call.stream.fault;
  launch(call, kernel);
}

}  // namespace backplane::cuda
