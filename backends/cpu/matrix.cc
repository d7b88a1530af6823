#include "backends/cpu/matrix.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/dequantize.h"

namespace backplane::cpu {

Matrix::Matrix(const bp_matrix& matrix, const char* name) : tensor_(matrix.tensor) {
  const std::string label = name;
  if (matrix.weight != nullptr) throw plugin::Failure(BP_INVALID, label + ": this device imports no weights");
  if (plugin::is_empty(tensor_)) return;
  if (plugin::is_quantized(tensor_.type) && !plugin::has_contiguous_rows(tensor_)) {
    throw plugin::Failure(BP_INVALID, label + ": the blocks of a row have gaps");
  }
  try {
    data_ = plugin::data_of<const std::byte>(tensor_);
  } catch (const plugin::Failure& failure) {
    throw plugin::Failure(failure.status(), label + ": " + failure.what());
  }
}

template <class Real>
void Matrix::read_row(std::int64_t row, Real* out) const {
  const std::byte* data = data_ + row * tensor_.stride[0];
  if (plugin::has_contiguous_rows(tensor_)) {
    read_elements(tensor_.type, data, columns(), out);
  } else {
    read_scattered(data, out);
  }
}

// Collects some elements first, so that converting them knows nothing of strides.
template <class Real>
void Matrix::read_scattered(const std::byte* row, Real* out) const {
  constexpr std::int64_t kChunk = 256;
  alignas(8) std::byte chunk[kChunk * 8];
  const std::int64_t bytes = plugin::type_info(tensor_.type).block_bytes;
  for (std::int64_t begin = 0; begin < columns(); begin += kChunk) {
    const std::int64_t n = std::min(kChunk, columns() - begin);
    const std::byte* from = row + begin * tensor_.stride[1];
    for (std::int64_t i = 0; i < n; ++i) std::memcpy(chunk + i * bytes, from + i * tensor_.stride[1], bytes);
    read_elements(tensor_.type, chunk, n, out + begin);
  }
}

template void Matrix::read_row(std::int64_t, float*) const;
template void Matrix::read_row(std::int64_t, double*) const;

}  // namespace backplane::cpu
