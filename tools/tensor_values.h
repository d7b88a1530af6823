// One tensor's values as text, for people and tests to look at.
#pragma once

#include "core/device/device.h"
#include "core/formats/container.h"
#include "tools/json_lines.h"

namespace backplane::tools {

// {"name", "type", "shape", "values": flat, row-major, as f32; NaN and infinities null}. `reference` converts. Throws
// Error{kBadFile} for a type that can't be converted, before anything is written.
void write_tensor_json(Output& out, device::Device& reference, const formats::TensorInfo& tensor);
// The first `limit` values, a few lines.
void write_tensor_text(Output& out, device::Device& reference, const formats::TensorInfo& tensor, std::size_t limit);

}  // namespace backplane::tools
