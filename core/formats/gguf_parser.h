// Reads one GGUF file. Internal to core/formats: use Gguf.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/mapped_file.h"
#include "core/formats/gguf.h"

namespace backplane::formats {

struct GgufPart {
  std::uint32_t version = 0;
  std::vector<GgufEntry> entries;
  std::vector<TensorInfo> tensors;
};

// Views in the result point into `file`'s mapping. Every count and length is checked against the bytes that are left
// before anything is allocated for it. Throws Error{kBadFile}.
GgufPart parse_gguf(const MappedFile& file, std::size_t file_index);

}  // namespace backplane::formats
