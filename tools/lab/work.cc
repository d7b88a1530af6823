#include "tools/lab/work.h"

#include <algorithm>
#include <initializer_list>

namespace backplane::lab {
namespace {

double elements(const models::MatrixRef& matrix) {
  return static_cast<double>(matrix.rows) * static_cast<double>(matrix.columns);
}

// Bytes of a value of a type that the device doesn't take and the host converts for it.
double converted_bytes(const device::Device& device) {
  for (const DType type : {DType::kF32, device.activation_type(), DType::kF64, DType::kBF16, DType::kF16}) {
    if (device.takes_weight_type(type)) return dtype_info(type).block_bytes;
  }
  return 4;
}

double matrix_bytes(const models::MatrixRef& matrix, const formats::Container& container,
                    const device::Device& device) {
  const formats::TensorInfo* tensor = matrix.present() ? container.find(matrix.name) : nullptr;
  if (!tensor || tensor->elements() == 0) return 0;
  const bool as_is = device.tables().weights->create || !tensor->type || device.takes_weight_type(*tensor->type);
  const double stored = static_cast<double>(tensor->data.size()) / static_cast<double>(tensor->elements());
  return elements(matrix) * (as_is ? stored : converted_bytes(device));
}

// How many tokens the token at a position sees, its own included.
std::uint64_t seen(std::uint64_t position, std::uint32_t window) {
  return window == 0 ? position + 1 : std::min<std::uint64_t>(position + 1, window);
}

}  // namespace

StepWork::StepWork(const models::ModelFile& file, const device::Device& device, DType kv_type) {
  const models::DecoderSpec& spec = file.spec();
  for (const models::LayerSpec& layer : spec.layers) {
    for (const models::LinearRef* linear :
         {&layer.q, &layer.k, &layer.v, &layer.qkv, &layer.o, &layer.gate, &layer.up, &layer.down}) {
      if (!linear->weight.present()) continue;
      token_flops_ += 2 * elements(linear->weight);
      layer_bytes_ += matrix_bytes(linear->weight, file.container(), device);
    }
    windows_.push_back(layer.window);
  }
  const double activation = dtype_info(device.activation_type()).block_bytes;
  const double heads = spec.heads, kv_heads = spec.kv_heads, dims = double{1} * spec.head_dim + spec.value_dim;
  row_flops_ = 2 * elements(spec.head.weight);
  key_flops_ = 2 * heads * dims;
  head_bytes_ = matrix_bytes(spec.head.weight, file.container(), device);
  embedding_row_bytes_ = matrix_bytes(spec.embedding, file.container(), device) / spec.vocab_size;
  kv_layer_bytes_ = kv_heads * dims * dtype_info(kv_type).block_bytes / dtype_info(kv_type).block_elements;
  logits_row_bytes_ = activation * spec.vocab_size;
}

double StepWork::attention_flops(std::uint64_t past, std::uint64_t tokens) const {
  double keys = 0;
  for (const std::uint32_t window : windows_) {
    for (std::uint64_t position = past; position < past + tokens; ++position) {
      keys += static_cast<double>(seen(position, window));
    }
  }
  return key_flops_ * keys;
}

std::uint32_t StepWork::smallest_window() const {
  std::uint32_t smallest = 0;
  for (const std::uint32_t window : windows_) {
    if (window != 0) smallest = smallest == 0 ? window : std::min(smallest, window);
  }
  return smallest;
}

double StepWork::tokens_flops(const Share& share) const {
  return static_cast<double>(share.tokens) * token_flops_ + static_cast<double>(share.rows) * row_flops_ +
         attention_flops(share.past, share.tokens);
}

Work StepWork::of(const Share& share) const {
  const auto tokens = static_cast<double>(share.tokens), rows = static_cast<double>(share.rows);
  Work work{.flops = tokens_flops(share)};
  work.bytes =
      layer_bytes_ + (share.rows > 0 ? head_bytes_ : 0) + tokens * embedding_row_bytes_ + rows * logits_row_bytes_;
  for (const std::uint32_t window : windows_) {
    const std::uint64_t before = window == 0 ? share.past : std::min<std::uint64_t>(share.past, window - 1);
    work.bytes += kv_layer_bytes_ * (static_cast<double>(before) + tokens);
  }
  return work;
}

}  // namespace backplane::lab
