#include "backends/onednn/matrix.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace backplane::onednn {
namespace {

bool is_float_weight(bp_type type) { return type == BP_TYPE_F32 || type == BP_TYPE_F16 || type == BP_TYPE_BF16; }

}  // namespace

void check_matrix_type(const bp_matrix& matrix) {
  const bp_type type = matrix.tensor.type;
  if (is_float_weight(type) || format_of(type) != nullptr) return;
  plugin::refuse(std::string("weights in ") + plugin::type_info(type).name);
}

Matrix::Matrix(const bp_matrix& matrix, const char* name) : tensor_(matrix.tensor) {
  const std::string label = name;
  if (matrix.weight != nullptr) {
    packed_ = &weight_of(matrix.weight);
    plugin::require(packed_->finished(), "a weight before its finish");
    if (packed_->rows() != tensor_.shape[0] || packed_->columns() != tensor_.shape[1] ||
        packed_->type() != tensor_.type) {
      throw plugin::Failure(BP_INVALID, label + ": the weight has another type or shape than its tensor");
    }
    return;
  }
  if (!is_float_weight(tensor_.type)) {
    throw plugin::Failure(BP_INVALID, label + ": quantized weights must be imported");
  }
  if (plugin::is_empty(tensor_)) return;
  try {
    data_ = plugin::data_of<const std::byte>(tensor_);
  } catch (const plugin::Failure& failure) {
    throw plugin::Failure(failure.status(), label + ": " + failure.what());
  }
}

float Matrix::element(std::int64_t row, std::int64_t column) const {
  const std::byte* at = data_ + row * tensor_.stride[0] + column * tensor_.stride[1];
  if (tensor_.type == BP_TYPE_F32) {
    float value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return tensor_.type == BP_TYPE_F16 ? plugin::half_to_float(bits) : plugin::bfloat_to_float(bits);
}

Panels Matrix::panels(std::int64_t first, std::int64_t count, std::uint8_t* scratch) const {
  if (packed_ != nullptr) return packed_->panels(first, count);
  auto* to = reinterpret_cast<float*>(scratch);
  for (std::int64_t p = first; p < first + count; ++p) {
    for (std::int64_t c = 0; c < columns(); ++c) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        const std::int64_t row = p * kLanes + lane;
        *to++ = row < rows() ? element(row, c) : 0;
      }
    }
  }
  return {scratch, columns() * kLanes * static_cast<std::int64_t>(sizeof(float)), count};
}

void Matrix::read_row(std::int64_t row, float* out) const {
  if (packed_ != nullptr) return packed_->read_row(row, out);
  for (std::int64_t c = 0; c < columns(); ++c) out[c] = element(row, c);
}

std::uint64_t Activations::bytes(std::int64_t tokens, std::int64_t columns, int terms) {
  const std::uint64_t one = Workspace::checked(static_cast<std::uint64_t>(tokens), static_cast<std::uint64_t>(columns));
  // At least QuantizedRows::room(tokens * terms) rows.
  const std::uint64_t rows =
      Workspace::checked(static_cast<std::uint64_t>(tokens / kGroup) + 1, static_cast<std::uint64_t>(kGroup * terms));
  const std::uint64_t elements = Workspace::checked(rows, static_cast<std::uint64_t>(columns));
  const std::uint64_t scales = Workspace::checked(elements / kBlock, sizeof(float));
  return Workspace::bytes_for(
      {elements, scales, scales, 2 * scales, terms > 1 ? Workspace::checked(one, sizeof(float)) : std::uint64_t{0}});
}

Activations::Activations(const Device& device, const bp_tensor& x, Workspace& workspace, int terms)
    : device_(device), x_(x, "x"), stride_(x.stride[0] / static_cast<std::int64_t>(sizeof(float))) {
  const auto elements = static_cast<std::uint64_t>(QuantizedRows::room(tokens() * terms) * columns());
  rows_.q = workspace.take<std::int8_t>(elements);
  rows_.d = workspace.take<float>(elements / kBlock);
  rows_.sum = workspace.take<float>(elements / kBlock);
  rows_.start = workspace.take<std::int32_t>(2 * (elements / kBlock));
  rows_.columns = columns();
  if (terms > 1) rest_ = workspace.take<float>(static_cast<std::uint64_t>(tokens() * columns()));
}

const QuantizedRows& Activations::quantized(const Format& format, int terms) {
  if (made_for_ == &format && terms_ == terms) return rows_;
  const auto quantize = device_.kernels->linear.quantize;
  rows_.group = QuantizedRows::group_of(terms * tokens());
  for_rows(tokens(), columns(), [&](std::int64_t t) {
    const float* x = x_.data() + t * stride_;
    quantize(format, x, rows_, terms * t);
    if (terms == 1) return;
    float* rest = rest_ + t * columns();
    for (std::int64_t c = 0; c < columns(); c += kBlock) {
      const std::int64_t at = rows_.index(2 * t, c / kBlock);
      for (std::int64_t i = 0; i < kBlock; ++i) {
        rest[c + i] = x[c + i] - rows_.d[at] * static_cast<float>(rows_.q[at * kBlock + i]);
      }
    }
    quantize(format, rest, rows_, 2 * t + 1);
  });
  made_for_ = &format;
  terms_ = terms;
  return rows_;
}

}  // namespace backplane::onednn
