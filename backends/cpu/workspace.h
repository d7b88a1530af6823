// Scratch memory of one op, supplied by the core.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::cpu {

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

}  // namespace backplane::cpu
