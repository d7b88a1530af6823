#include "models/weight_loader.h"

namespace backplane::models {

std::shared_ptr<device::Weight> WeightLoader::matrix(const MatrixRef& ref) {
  const Key key{ref.name, ref.row_begin, ref.rows};
  if (const auto it = matrices_.find(key); it != matrices_.end()) return it->second;
  const formats::TensorInfo& tensor = container_->tensor(ref.name);
  device::WeightSource source;
  source.name = ref.name;
  source.transposed = ref.transposed;
  source.stored.type = *tensor.type;
  source.stored.rows = ref.transposed ? ref.columns : ref.rows;
  source.stored.columns = ref.transposed ? ref.rows : ref.columns;
  const std::uint64_t row = *row_bytes(*tensor.type, source.stored.columns);
  source.stored.data = tensor.data.subspan(ref.row_begin * row, source.stored.rows * row);
  source.release = [container = container_, file = tensor.file](std::span<const std::byte> data) {
    container->files()[file].release(data);
  };
  return matrices_[key] = executor_.weight(std::move(source));
}

device::Tensor WeightLoader::vector(const VectorRef& ref) {
  if (!ref.present()) return {};
  const formats::TensorInfo& tensor = container_->tensor(ref.name);
  const std::uint64_t size = dtype_info(*tensor.type).block_bytes;
  return executor_.parameter(ref.name,
                             {tensor.data.subspan(ref.begin * size, ref.count * size), *tensor.type, 1, ref.count});
}

device::Linear WeightLoader::linear(const LinearRef& ref) {
  if (!ref.weight.present()) return {};
  return {matrix(ref.weight), vector(ref.bias)};
}

device::Norm WeightLoader::norm(const NormRef& ref, const DecoderSpec& spec) {
  device::Norm norm;
  norm.weight = vector(ref.weight);
  norm.bias = vector(ref.bias);
  norm.eps = spec.norm_eps;
  norm.unit_offset = spec.norm_unit_offset;
  norm.kind = spec.norm_kind;
  return norm;
}

}  // namespace backplane::models
