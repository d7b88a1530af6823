// The tensor types of GGUF files by their numbers, also those that nothing here computes with.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/dtype.h"

namespace backplane::formats {

struct GgmlType {
  std::uint32_t id;
  std::string_view name;
  std::uint32_t block_elements;
  std::uint32_t block_bytes;
  std::optional<DType> type;  // empty: its size is known, its contents can't be used
};

// Nullptr for numbers that were never given out or that ggml has withdrawn.
const GgmlType* find_ggml_type(std::uint32_t id);

}  // namespace backplane::formats
