// Conversions on the reference plugin, for weights and parameters: the core itself computes no tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/dtype.h"
#include "core/device/device.h"

namespace backplane::device {

// A matrix in host memory as a file stores it: `rows` rows of `columns` values, contiguous.
struct StoredMatrix {
  std::span<const std::byte> data;
  DType type = DType::kNone;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
};

// All values as `to` (a float type), row after row. Quantized types are dequantized. `reference` is host-visible and
// can import host memory, as the `cpu` plugin can. Throws Error{kBadFile} when the data is too short for the shape.
void convert(Device& reference, const StoredMatrix& from, DType to, std::span<std::byte> out);
std::vector<std::byte> convert(Device& reference, const StoredMatrix& from, DType to);

// The transpose, contiguous, in the same plain type.
std::vector<std::byte> transpose(Device& reference, const StoredMatrix& from);

}  // namespace backplane::device
