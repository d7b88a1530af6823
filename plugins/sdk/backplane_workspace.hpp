// Scratch memory of one op, supplied by the core. SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <initializer_list>

#include "backplane_call.hpp"
#include "backplane_host_memory.hpp"
#include "backplane_tensor.hpp"

namespace backplane::plugin {

// Hands out pieces from the front. A copy that is passed on hands out what is left, again and again: parts of a fused
// op run one after another and may all use the same rest.
class Workspace {
 public:
  explicit Workspace(const bp_op& op);

  // `count` elements, aligned to a cache line. Throws BP_INVALID where the core gave less than was asked for.
  template <class T>
  T* take(std::uint64_t count) {
    return reinterpret_cast<T*>(data_ + reserve(checked(count, sizeof(T))));
  }

  // A contiguous [rows,columns] of a plain type, as a tensor for a part of a fused op.
  bp_tensor take_tensor(bp_type type, std::int64_t rows, std::int64_t columns);

  // What take calls for pieces of these sizes will need in all.
  static std::uint64_t bytes_for(std::initializer_list<std::uint64_t> pieces);
  // a * b, or BP_INVALID where that can't be.
  static std::uint64_t checked(std::uint64_t a, std::uint64_t b);

 private:
  std::uint64_t reserve(std::uint64_t bytes);

  bp_buffer buffer_ = nullptr;
  std::byte* data_ = nullptr;  // of the whole buffer
  std::uint64_t next_ = 0, end_ = 0;
};

inline Workspace::Workspace(const bp_op& op) {
  if (op.workspace == nullptr) return;
  const HostBuffer& buffer = host_buffer(op.workspace);
  require(buffer.writable, "the workspace is read-only");
  require(op.workspace_offset <= buffer.bytes && op.workspace_bytes <= buffer.bytes - op.workspace_offset,
          "the workspace reaches beyond its buffer");
  buffer_ = op.workspace;
  data_ = buffer.data;
  next_ = op.workspace_offset;
  end_ = op.workspace_offset + op.workspace_bytes;
}

inline std::uint64_t Workspace::reserve(std::uint64_t bytes) {
  const std::uint64_t misaligned = (reinterpret_cast<std::uintptr_t>(data_) + next_) % kHostAlignment;
  const std::uint64_t skip = misaligned == 0 ? 0 : kHostAlignment - misaligned;
  const std::uint64_t left = end_ - next_;
  require(skip <= left && bytes <= left - skip, "the workspace is smaller than supports asked for");
  const std::uint64_t at = next_ + skip;
  next_ = at + bytes;
  return at;
}

inline bp_tensor Workspace::take_tensor(bp_type type, std::int64_t rows, std::int64_t columns) {
  const std::uint64_t element = type_info(type).block_bytes;
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

inline std::uint64_t Workspace::bytes_for(std::initializer_list<std::uint64_t> pieces) {
  std::uint64_t total = 0;
  for (const std::uint64_t piece : pieces) {
    if (piece == 0) continue;
    const Bytes padded = checked_add(piece, kHostAlignment);  // room to align this one
    const Bytes sum = padded ? checked_add(total, *padded) : std::nullopt;
    require(sum.has_value(), "sizes that no memory can hold");
    total = *sum;
  }
  return total;
}

inline std::uint64_t Workspace::checked(std::uint64_t a, std::uint64_t b) {
  const Bytes product = checked_multiply(a, b);
  require(product.has_value(), "sizes that no memory can hold");
  return *product;
}

}  // namespace backplane::plugin
