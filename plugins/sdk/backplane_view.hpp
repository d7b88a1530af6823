// Tensors in host memory as C++ sees them, checked against their buffers when they are made. SPDX-License-Identifier:
// MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "backplane_call.hpp"
#include "backplane_host_memory.hpp"
#include "backplane_tensor.hpp"

namespace backplane::plugin {

// A tensor of elements T (const for what is only read) whose innermost dimension is contiguous. Making one throws
// BP_INVALID when the tensor doesn't lie inside its buffer, isn't aligned, or has another type than T.
template <class T>
class View {
 public:
  View(const bp_tensor& tensor, const char* name) : tensor_(tensor) {
    if (is_empty(tensor)) return;
    try {
      data_ = reinterpret_cast<Byte*>(data_of<T>(tensor));
      check_strides();
    } catch (const Failure& failure) {
      throw Failure(failure.status(), std::string(name) + ": " + failure.what());
    }
  }

  std::int64_t rows() const { return row_count(tensor_); }
  std::int64_t columns() const { return row_length(tensor_); }
  std::int64_t shape(int dimension) const { return tensor_.shape[dimension]; }

  // A row of the innermost dimension: by one index for each of the others, or by its number in row-major order.
  T* at(std::int64_t i) const { return pointer(i * tensor_.stride[0]); }
  T* at(std::int64_t i, std::int64_t j) const { return pointer(i * tensor_.stride[0] + j * tensor_.stride[1]); }
  T* row(std::int64_t number) const {
    std::int64_t offset = 0;
    for (int i = static_cast<int>(tensor_.rank) - 2; i >= 0; --i) {
      offset += number % tensor_.shape[i] * tensor_.stride[i];
      number /= tensor_.shape[i];
    }
    return pointer(offset);
  }

  // The elements of a tensor with one dimension.
  T* data() const { return pointer(0); }
  T& operator[](std::int64_t i) const { return data()[i]; }

 private:
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;

  T* pointer(std::int64_t offset) const { return reinterpret_cast<T*>(data_ + offset); }

  void check_strides() const {
    require(has_contiguous_rows(tensor_), "the elements of a row have gaps");
    for (std::uint32_t i = 0; i + 1 < tensor_.rank; ++i) {
      if (tensor_.shape[i] == 1) continue;
      require(tensor_.stride[i] % static_cast<std::int64_t>(alignof(T)) == 0, "rows are not aligned");
      require(std::is_const_v<T> || tensor_.stride[i] != 0, "rows of a result are all the same memory");
    }
  }

  bp_tensor tensor_;
  Byte* data_ = nullptr;
};

// Norm weights, biases and sinks: a vector of F32 or F64, or absent.
class Parameters {
 public:
  Parameters(const bp_tensor& tensor, const char* name) : present_(!is_absent(tensor)) {
    if (!present_) return;
    if (tensor.type == BP_TYPE_F32) {
      singles_ = View<const float>(tensor, name).data();
    } else {
      doubles_ = View<const double>(tensor, name).data();
    }
  }

  bool present() const { return present_; }
  template <class Real>
  Real get(std::int64_t i) const {
    return singles_ != nullptr ? static_cast<Real>(singles_[i]) : static_cast<Real>(doubles_[i]);
  }

 private:
  bool present_;
  const float* singles_ = nullptr;
  const double* doubles_ = nullptr;
};

}  // namespace backplane::plugin
