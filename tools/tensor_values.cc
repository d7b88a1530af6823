#include "tools/tensor_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/device/reference.h"

namespace backplane::tools {
namespace {

constexpr std::uint64_t kBlockValues = std::uint64_t{1} << 20;  // converted at once, to bound the memory

device::StoredMatrix as_matrix(const formats::TensorInfo& tensor) {
  if (!tensor.type) {
    throw Error(ErrorCode::kBadFile, "can't read values of type " + tensor.type_name, tensor.name,
                "convert the model to a type that `backplane inspect` shows as supported");
  }
  const std::uint64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
  const std::uint64_t rows = columns == 0 ? 0 : tensor.elements() / columns;
  return {tensor.data, *tensor.type, rows, columns};
}

// Calls `use` with the values, some rows at a time (a single row at least), until it returns false.
void for_each_block(device::Device& reference, const formats::TensorInfo& tensor,
                    const std::function<bool(std::span<const float>)>& use) {
  const device::StoredMatrix all = as_matrix(tensor);
  const auto row = row_bytes(all.type, all.columns);
  if (all.rows == 0) return;
  if (!row || *row > all.data.size() / all.rows) {
    throw Error(ErrorCode::kBadFile, "the data doesn't fit its shape", tensor.name);
  }
  const std::uint64_t at_once = std::max<std::uint64_t>(kBlockValues / all.columns, 1);
  std::vector<float> values;
  for (std::uint64_t begin = 0; begin < all.rows; begin += at_once) {
    const std::uint64_t rows = std::min(at_once, all.rows - begin);
    values.resize(rows * all.columns);
    device::convert(reference, {all.data.subspan(begin * *row, rows * *row), all.type, rows, all.columns}, DType::kF32,
                    std::as_writable_bytes(std::span(values)));
    if (!use(values)) return;
  }
}

}  // namespace

void write_tensor_json(Output& out, device::Device& reference, const formats::TensorInfo& tensor) {
  bool begun = false;
  const auto begin = [&] {
    out << "{\"name\": " << json_string(tensor.name) << ", \"type\": " << json_string(tensor.type_name)
        << fmt::format(", \"shape\": [{}], \"values\": [", fmt::join(tensor.shape, ", "));
  };
  for_each_block(reference, tensor, [&](std::span<const float> values) {
    if (!begun) begin();
    for (const float value : values) {
      if (begun) out << ',';
      begun = true;
      out.number(value);
    }
    return true;
  });
  if (!begun) begin();
  out << "]}\n";
}

void write_tensor_text(Output& out, device::Device& reference, const formats::TensorInfo& tensor, std::size_t limit) {
  out << fmt::format("{}  {}  [{}]\n", tensor.name, tensor.type_name, fmt::join(tensor.shape, ", "));
  std::size_t written = 0;
  for_each_block(reference, tensor, [&](std::span<const float> values) {
    for (const float value : values.first(std::min(values.size(), limit - written))) {
      out << fmt::format("{:>14.7g}{}", value, ++written % 8 == 0 ? "\n" : "");
    }
    return written < limit;
  });
  if (written % 8 != 0) out << '\n';
  if (tensor.elements() > written) out << fmt::format("... {} more\n", tensor.elements() - written);
}

}  // namespace backplane::tools
