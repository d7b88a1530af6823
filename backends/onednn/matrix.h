// What is multiplied: weight matrices and activations.
#pragma once

#include <cstdint>

#include "backends/onednn/ops.h"

namespace backplane::onednn {

// Whether LINEAR and EMBED take weights of that type: imported, or canonical floats. Otherwise throws BP_UNSUPPORTED.
void check_matrix_type(const bp_matrix& matrix);

// A matrix with so many more rows than columns makes logits, whose errors nothing averages out, for a few tokens only.
// Where its weights are quantized, its activations are rounded to twice 8 bits: once, and then what that left over.
constexpr bool is_head(std::int64_t rows, std::int64_t columns) { return rows >= 16 * columns; }
inline bool is_head(const bp_matrix& matrix) { return is_head(matrix.tensor.shape[0], matrix.tensor.shape[1]); }

// A weight matrix [N,C]: packed, or canonical rows of F32, F16 or BF16 with any strides, which are packed panel by
// panel as they are needed.
class Matrix {
 public:
  Matrix(const bp_matrix& matrix, const char* name);

  std::int64_t rows() const { return tensor_.shape[0]; }
  std::int64_t columns() const { return tensor_.shape[1]; }
  const Format* format() const { return packed_ ? packed_->format() : nullptr; }
  bp_type type() const { return tensor_.type; }
  std::int64_t panel_count() const { return (rows() + kLanes - 1) / kLanes; }
  // Panels [first, first + count), in `scratch` where they aren't packed: count * columns * 32 bytes.
  Panels panels(std::int64_t first, std::int64_t count, std::uint8_t* scratch) const;
  bool packed() const { return packed_ != nullptr; }
  // Row `row` as floats.
  void read_row(std::int64_t row, float* out) const;

 private:
  float element(std::int64_t row, std::int64_t column) const;

  bp_tensor tensor_;
  const PackedWeight* packed_ = nullptr;
  const std::byte* data_ = nullptr;
};

// The rows [T,C] that matrices are multiplied with, as floats and, for quantized weights, as bytes.
class Activations {
 public:
  // `terms`: the most that `quantized` will be asked for.
  Activations(const Device& device, const bp_tensor& x, Workspace& workspace, int terms = 1);

  std::int64_t tokens() const { return x_.rows(); }
  std::int64_t columns() const { return x_.columns(); }
  const float* floats() const { return x_.data(); }
  std::int64_t stride() const { return stride_; }  // floats from row to row
  int most_terms() const { return rest_ != nullptr ? 2 : 1; }
  // As bytes for weights of that format: quantized now, unless they were for the last call. With two terms, rows 2t and
  // 2t + 1 add up to token t.
  const QuantizedRows& quantized(const Format& format, int terms);

  static std::uint64_t bytes(std::int64_t tokens, std::int64_t columns, int terms = 1);

 private:
  const Device& device_;
  View<const float> x_;
  std::int64_t stride_;
  QuantizedRows rows_{};
  float* rest_ = nullptr;  // for two terms: [T,C]
  const Format* made_for_ = nullptr;
  int terms_ = 0;
};

}  // namespace backplane::onednn
