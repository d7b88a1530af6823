#include "backends/cpu/check.h"

namespace backplane::cpu {
namespace {

constexpr std::uint64_t kMostElements = std::uint64_t{1} << 60;  // so that products of sizes are no worry later

std::string type_name(bp_type type) {
  if (type == BP_TYPE_NONE) return "nothing";
  const plugin::TypeInfo info = plugin::type_info(type);
  return info.block_elements != 0 ? info.name : "type " + std::to_string(type);
}

std::string shape_text(const std::int64_t* sizes, std::size_t rank) {
  std::string text = "[";
  for (std::size_t i = 0; i < rank; ++i) {
    if (i > 0) text += ',';
    text += sizes[i] == Check::kAny ? "any" : std::to_string(sizes[i]);
  }
  return text + "]";
}

}  // namespace

void Check::well_formed(const bp_tensor& tensor, const char* name) const {
  const std::string label = name;
  if (plugin::is_absent(tensor)) invalid(label + " is absent");
  const plugin::TypeInfo info = plugin::type_info(tensor.type);
  if (info.block_elements == 0) plugin::refuse(label + " has the unknown " + type_name(tensor.type));
  if (tensor.rank < 1 || tensor.rank > 4) invalid(label + " has rank " + std::to_string(tensor.rank));
  if (!plugin::is_well_formed(tensor)) invalid(label + " has a negative size");
  const auto elements = plugin::element_count(tensor);
  if (!elements || *elements > kMostElements) invalid(label + " has too many elements");
  if (plugin::row_length(tensor) % info.block_elements != 0) {
    invalid(label + " has rows of " + std::to_string(plugin::row_length(tensor)) + ", not whole blocks of " +
            info.name);
  }
}

void Check::shape(const bp_tensor& tensor, const char* name, std::initializer_list<std::int64_t> shape) const {
  well_formed(tensor, name);
  bool equal = tensor.rank == shape.size();
  for (std::uint32_t i = 0; equal && i < tensor.rank; ++i) {
    const std::int64_t wanted = shape.begin()[i];
    equal = wanted == kAny || wanted == tensor.shape[i];
  }
  if (!equal) {
    invalid(std::string(name) + " has shape " + shape_text(tensor.shape, tensor.rank) + " instead of " +
            shape_text(shape.begin(), shape.size()));
  }
}

void Check::same_shape(const bp_tensor& tensor, const char* name, const bp_tensor& like) const {
  well_formed(tensor, name);
  bool equal = tensor.rank == like.rank;
  for (std::uint32_t i = 0; equal && i < tensor.rank; ++i) equal = tensor.shape[i] == like.shape[i];
  if (!equal) {
    invalid(std::string(name) + " has shape " + shape_text(tensor.shape, tensor.rank) + " instead of " +
            shape_text(like.shape, like.rank));
  }
}

void Check::activation_type(const bp_tensor& tensor, const char* name) {
  if (tensor.type == real) return;
  if (running || !plugin::is_float(tensor.type)) {
    plugin::refuse(std::string(name) + " is " + type_name(tensor.type) + "; activations are " + type_name(real));
  }
  must_cast = true;
}

void Check::activation(const bp_tensor& tensor, const char* name, std::initializer_list<std::int64_t> sizes) {
  shape(tensor, name, sizes);
  activation_type(tensor, name);
}

void Check::activation_like(const bp_tensor& tensor, const char* name, const bp_tensor& like) {
  same_shape(tensor, name, like);
  activation_type(tensor, name);
}

void Check::exact(const bp_tensor& tensor, const char* name, bp_type type,
                  std::initializer_list<std::int64_t> sizes) const {
  shape(tensor, name, sizes);
  if (tensor.type != type) {
    invalid(std::string(name) + " is " + type_name(tensor.type) + " instead of " + type_name(type));
  }
}

void Check::parameters(const bp_tensor& tensor, const char* name, std::int64_t length) const {
  if (plugin::is_absent(tensor)) return;
  shape(tensor, name, {length});
  if (tensor.type != BP_TYPE_F32 && tensor.type != real) {
    plugin::refuse(std::string(name) + " is " + type_name(tensor.type) + " instead of F32" +
                   (real == BP_TYPE_F64 ? " or F64" : ""));
  }
}

void Check::matrix(const bp_matrix& matrix, const char* name, std::int64_t rows, std::int64_t columns) const {
  const bp_tensor& tensor = matrix.tensor;
  well_formed(tensor, name);
  if (!plugin::is_float(tensor.type) && !plugin::is_quantized(tensor.type)) {
    plugin::refuse(std::string(name) + " is " + type_name(tensor.type) + ", which is no type of weights here");
  }
  shape(tensor, name, {rows, columns});
}

void Check::pages(const bp_tensor& tensor, const char* name, std::int64_t heads, std::int64_t dim) const {
  well_formed(tensor, name);
  if (!plugin::is_float(tensor.type)) {
    plugin::refuse(std::string(name) + " is " + type_name(tensor.type) + ", which is no type of a KV cache here");
  }
  shape(tensor, name, {kAny, kAny, heads, dim});
}

}  // namespace backplane::cpu
