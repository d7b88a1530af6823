// Whether arguments make sense: the same questions for `supports`, which knows types and shapes only, and for `run`.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::cpu {

// Functions throw BP_UNSUPPORTED for a type that the device doesn't take and BP_INVALID for what contradicts the
// header. The reason names the tensor.
class Check {
 public:
  static constexpr std::int64_t kAny = -1;  // in a shape: whatever it is

  Check(std::uint32_t op_code, bp_type real_type, bool runs) : code(op_code), real(real_type), running(runs) {}

  const std::uint32_t code;  // BP_OP_*
  const bp_type real;        // F32 or F64: what the device computes in
  const bool running;        // memory is there, and activations have the device's type
  bool must_cast = false;    // set while planning, when activations were asked for in another type

  // An activation tensor of that shape.
  void activation(const bp_tensor& tensor, const char* name, std::initializer_list<std::int64_t> shape);
  // The same with the shape of another tensor, whatever it is.
  void activation_like(const bp_tensor& tensor, const char* name, const bp_tensor& like);
  // A tensor of one type and shape.
  void exact(const bp_tensor& tensor, const char* name, bp_type type, std::initializer_list<std::int64_t> shape) const;
  // An optional vector in F32 or in the device's type.
  void parameters(const bp_tensor& tensor, const char* name, std::int64_t length) const;
  // A weight matrix.
  void matrix(const bp_matrix& matrix, const char* name, std::int64_t rows, std::int64_t columns) const;
  // KV pages of a canonical cache: [P,S,heads,dim].
  void pages(const bp_tensor& tensor, const char* name, std::int64_t heads, std::int64_t dim) const;
  void shape(const bp_tensor& tensor, const char* name, std::initializer_list<std::int64_t> shape) const;
  void same_shape(const bp_tensor& tensor, const char* name, const bp_tensor& like) const;
  // Known type, rank 1 to 4, no negative size, whole blocks.
  void well_formed(const bp_tensor& tensor, const char* name) const;

  [[noreturn]] void invalid(const std::string& text) const { throw plugin::Failure(BP_INVALID, text); }

 private:
  void activation_type(const bp_tensor& tensor, const char* name);
};

}  // namespace backplane::cpu
