#include "backends/cpu/workspace.h"

namespace backplane::cpu {
namespace {

constexpr std::uint64_t kLine = 64;

}  // namespace

Workspace::Workspace(const bp_op& op) {
  if (op.workspace == nullptr) return;
  const plugin::HostBuffer& buffer = plugin::host_buffer(op.workspace);
  plugin::require(buffer.writable, "the workspace is read-only");
  plugin::require(op.workspace_offset <= buffer.bytes && op.workspace_bytes <= buffer.bytes - op.workspace_offset,
                  "the workspace reaches beyond its buffer");
  buffer_ = op.workspace;
  data_ = buffer.data;
  next_ = op.workspace_offset;
  end_ = op.workspace_offset + op.workspace_bytes;
}

std::uint64_t Workspace::reserve(std::uint64_t bytes) {
  const std::uint64_t misaligned = (reinterpret_cast<std::uintptr_t>(data_) + next_) % kLine;
  const std::uint64_t skip = misaligned == 0 ? 0 : kLine - misaligned;
  const std::uint64_t left = end_ - next_;
  plugin::require(skip <= left && bytes <= left - skip, "the workspace is smaller than supports asked for");
  const std::uint64_t at = next_ + skip;
  next_ = at + bytes;
  return at;
}

bp_tensor Workspace::take_tensor(bp_type type, std::int64_t rows, std::int64_t columns) {
  const std::uint64_t element = plugin::type_info(type).block_bytes;
  const std::uint64_t row = checked(static_cast<std::uint64_t>(columns), element);
  bp_tensor tensor{};
  tensor.buffer = buffer_;
  tensor.offset = reserve(checked(static_cast<std::uint64_t>(rows), row));
  tensor.type = type;
  tensor.rank = 2;
  for (auto& size : tensor.shape) size = 1;
  tensor.shape[0] = rows;
  tensor.shape[1] = columns;
  tensor.stride[0] = static_cast<std::int64_t>(row);
  tensor.stride[1] = static_cast<std::int64_t>(element);
  return tensor;
}

std::uint64_t Workspace::bytes_for(std::initializer_list<std::uint64_t> pieces) {
  std::uint64_t total = 0;
  for (const std::uint64_t piece : pieces) {
    if (piece == 0) continue;
    const plugin::Bytes padded = plugin::checked_add(piece, kLine);  // room to align this one
    const plugin::Bytes sum = padded ? plugin::checked_add(total, *padded) : std::nullopt;
    plugin::require(sum.has_value(), "sizes that no memory can hold");
    total = *sum;
  }
  return total;
}

std::uint64_t Workspace::checked(std::uint64_t a, std::uint64_t b) {
  const plugin::Bytes product = plugin::checked_multiply(a, b);
  plugin::require(product.has_value(), "sizes that no memory can hold");
  return *product;
}

}  // namespace backplane::cpu
