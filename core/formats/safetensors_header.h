// The header of one safetensors file. Internal to core/formats: use Safetensors.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/base/mapped_file.h"
#include "core/formats/container.h"

namespace backplane::formats {

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in order of their bytes
  std::map<std::string, std::string> metadata;
};

// Throws Error{kBadFile} for anything that the format's rules forbid: the tensors' bytes cover the data exactly,
// without a hole, an overlap or a rest.
SafetensorsHeader parse_safetensors(const MappedFile& file, std::size_t file_index);

}  // namespace backplane::formats
