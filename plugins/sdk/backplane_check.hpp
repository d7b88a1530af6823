// Whether arguments make sense: the same questions for `supports`, which knows types and shapes only, and for `run`.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "backplane_call.hpp"
#include "backplane_tensor.hpp"

namespace backplane::plugin {
namespace check_text {

constexpr std::uint64_t kMostElements = std::uint64_t{1} << 60;  // so that products of sizes are no worry later

inline std::string type_name(bp_type type) {
  if (type == BP_TYPE_NONE) return "nothing";
  const TypeInfo info = type_info(type);
  return info.block_elements != 0 ? info.name : "type " + std::to_string(type);
}

inline std::string shape_text(const std::int64_t* sizes, std::size_t rank) {
  std::string text = "[";
  for (std::size_t i = 0; i < rank; ++i) {
    if (i > 0) text += ',';
    text += sizes[i] == -1 ? "any" : std::to_string(sizes[i]);
  }
  return text + "]";
}

}  // namespace check_text

// Functions throw BP_UNSUPPORTED for a type that the device doesn't take and BP_INVALID for what contradicts the
// header. The reason names the tensor.
class Check {
 public:
  static constexpr std::int64_t kAny = -1;  // in a shape: whatever it is

  Check(std::uint32_t op_code, bp_type real_type, bool runs, bool has_cache = false)
      : code(op_code), real(real_type), running(runs), owns_cache(has_cache) {}

  const std::uint32_t code;  // BP_OP_*
  const bp_type real;        // what activations are in: F32, F64 or BF16
  const bool running;        // memory is there, and activations have the device's type
  const bool owns_cache;     // the device has KV caches in a layout of its own
  bool must_cast = false;    // set while planning, when activations were asked for in another type

  // An activation tensor of that shape.
  void activation(const bp_tensor& tensor, const char* name, std::initializer_list<std::int64_t> shape);
  // The same with the shape of another tensor, whatever it is.
  void activation_like(const bp_tensor& tensor, const char* name, const bp_tensor& like);
  // A tensor of one type and shape.
  void exact(const bp_tensor& tensor, const char* name, bp_type type, std::initializer_list<std::int64_t> shape) const;
  // An optional vector in F32, or in F64 where that is the device's type.
  void parameters(const bp_tensor& tensor, const char* name, std::int64_t length) const;
  // A weight matrix.
  void matrix(const bp_matrix& matrix, const char* name, std::int64_t rows, std::int64_t columns) const;
  // KV pages of a canonical cache: [P,S,heads,dim].
  void pages(const bp_tensor& tensor, const char* name, std::int64_t heads, std::int64_t dim) const;
  void shape(const bp_tensor& tensor, const char* name, std::initializer_list<std::int64_t> shape) const;
  void same_shape(const bp_tensor& tensor, const char* name, const bp_tensor& like) const;
  // Known type, rank 1 to 4, no negative size, whole blocks.
  void well_formed(const bp_tensor& tensor, const char* name) const;

  [[noreturn]] void invalid(const std::string& text) const { throw Failure(BP_INVALID, text); }

 private:
  void activation_type(const bp_tensor& tensor, const char* name);
  void match(const bp_tensor& tensor, const char* name, std::initializer_list<std::int64_t> shape) const;
  // What is wrong, in words: apart from the questions, which every op of every step asks.
  [[gnu::cold]] void look_closely(const bp_tensor& tensor, const char* name) const;
  [[noreturn, gnu::cold]] void wrong_shape(const bp_tensor& tensor, const char* name, const std::int64_t* wanted,
                                           std::size_t rank) const;
  [[noreturn, gnu::cold]] void wrong_type(const bp_tensor& tensor, const char* name, bp_type wanted) const;
  [[noreturn, gnu::cold]] void refuse_type(const bp_tensor& tensor, const char* name, const std::string& why) const;
};

// Every tensor of every op goes through here, and most are plain and have sizes whose product can't be too large.
inline void Check::well_formed(const bp_tensor& tensor, const char* name) const {
  const TypeInfo& info = type_info(tensor.type);
  if (info.block_elements == 0 || tensor.rank < 1 || tensor.rank > 4) return look_closely(tensor, name);
  std::uint64_t elements = 1;
  for (std::uint32_t i = 0; i < tensor.rank; ++i) {
    const auto size = static_cast<std::uint64_t>(tensor.shape[i]);  // a negative one is huge
    if (((elements | size) >> 30) != 0) return look_closely(tensor, name);
    elements *= size;
  }
  if (info.block_elements > 1 && row_length(tensor) % info.block_elements != 0) look_closely(tensor, name);
}

inline void Check::look_closely(const bp_tensor& tensor, const char* name) const {
  const auto label = [name] { return std::string(name); };
  if (is_absent(tensor)) invalid(label() + " is absent");
  const TypeInfo info = type_info(tensor.type);
  if (info.block_elements == 0) refuse(label() + " has the unknown " + check_text::type_name(tensor.type));
  if (tensor.rank < 1 || tensor.rank > 4) invalid(label() + " has rank " + std::to_string(tensor.rank));
  if (!is_well_formed(tensor)) invalid(label() + " has a negative size");
  const auto elements = element_count(tensor);
  if (!elements || *elements > check_text::kMostElements) invalid(label() + " has too many elements");
  if (row_length(tensor) % info.block_elements != 0) {
    invalid(label() + " has rows of " + std::to_string(row_length(tensor)) + ", not whole blocks of " + info.name);
  }
}

inline void Check::wrong_shape(const bp_tensor& tensor, const char* name, const std::int64_t* wanted,
                               std::size_t rank) const {
  invalid(std::string(name) + " has shape " + check_text::shape_text(tensor.shape, tensor.rank) + " instead of " +
          check_text::shape_text(wanted, rank));
}

inline void Check::wrong_type(const bp_tensor& tensor, const char* name, bp_type wanted) const {
  invalid(std::string(name) + " is " + check_text::type_name(tensor.type) + " instead of " +
          check_text::type_name(wanted));
}

inline void Check::refuse_type(const bp_tensor& tensor, const char* name, const std::string& why) const {
  refuse(std::string(name) + " is " + check_text::type_name(tensor.type) + why);
}

inline void Check::shape(const bp_tensor& tensor, const char* name, std::initializer_list<std::int64_t> shape) const {
  well_formed(tensor, name);
  match(tensor, name, shape);
}

inline void Check::match(const bp_tensor& tensor, const char* name, std::initializer_list<std::int64_t> shape) const {
  bool equal = tensor.rank == shape.size();
  for (std::uint32_t i = 0; equal && i < tensor.rank; ++i) {
    const std::int64_t wanted = shape.begin()[i];
    equal = wanted == kAny || wanted == tensor.shape[i];
  }
  if (!equal) wrong_shape(tensor, name, shape.begin(), shape.size());
}

inline void Check::same_shape(const bp_tensor& tensor, const char* name, const bp_tensor& like) const {
  well_formed(tensor, name);
  bool equal = tensor.rank == like.rank;
  for (std::uint32_t i = 0; equal && i < tensor.rank; ++i) equal = tensor.shape[i] == like.shape[i];
  if (!equal) wrong_shape(tensor, name, like.shape, like.rank);
}

inline void Check::activation_type(const bp_tensor& tensor, const char* name) {
  if (tensor.type == real) return;
  if (running || !is_float(tensor.type)) {
    refuse_type(tensor, name, "; activations are " + check_text::type_name(real));
  }
  must_cast = true;
}

inline void Check::activation(const bp_tensor& tensor, const char* name, std::initializer_list<std::int64_t> sizes) {
  shape(tensor, name, sizes);
  activation_type(tensor, name);
}

inline void Check::activation_like(const bp_tensor& tensor, const char* name, const bp_tensor& like) {
  same_shape(tensor, name, like);
  activation_type(tensor, name);
}

inline void Check::exact(const bp_tensor& tensor, const char* name, bp_type type,
                         std::initializer_list<std::int64_t> sizes) const {
  shape(tensor, name, sizes);
  if (tensor.type != type) wrong_type(tensor, name, type);
}

inline void Check::parameters(const bp_tensor& tensor, const char* name, std::int64_t length) const {
  if (is_absent(tensor)) return;
  shape(tensor, name, {length});
  if (tensor.type != BP_TYPE_F32 && (real != BP_TYPE_F64 || tensor.type != real)) {
    refuse_type(tensor, name, real == BP_TYPE_F64 ? " instead of F32 or F64" : " instead of F32");
  }
}

inline void Check::matrix(const bp_matrix& matrix, const char* name, std::int64_t rows, std::int64_t columns) const {
  const bp_tensor& tensor = matrix.tensor;
  well_formed(tensor, name);
  if (!is_float(tensor.type) && !is_quantized(tensor.type)) {
    refuse_type(tensor, name, ", which is no type of weights here");
  }
  match(tensor, name, {rows, columns});
}

inline void Check::pages(const bp_tensor& tensor, const char* name, std::int64_t heads, std::int64_t dim) const {
  well_formed(tensor, name);
  if (!is_float(tensor.type) && tensor.type != BP_TYPE_F8_E4M3 && tensor.type != BP_TYPE_Q8_0) {
    refuse_type(tensor, name, ", which is no type of a KV cache here");
  }
  match(tensor, name, {kAny, kAny, heads, dim});
}

}  // namespace backplane::plugin
