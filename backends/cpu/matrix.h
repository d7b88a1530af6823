// Weight matrices as the reference reads them: in their file's own blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::cpu {

// A weight matrix [N,C] of any float or quantized type; a float one may be stored transposed.
class Matrix {
 public:
  Matrix(const bp_matrix& matrix, const char* name);

  std::int64_t rows() const { return tensor_.shape[0]; }
  std::int64_t columns() const { return tensor_.shape[1]; }

  // Row `row` as C numbers.
  template <class Real>
  void read_row(std::int64_t row, Real* out) const;

 private:
  template <class Real>
  void read_scattered(const std::byte* row, Real* out) const;

  bp_tensor tensor_;
  const std::byte* data_ = nullptr;
};

}  // namespace backplane::cpu
