// Element types as doubles, both ways, and the quantized blocks this plugin takes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugins/sdk/backplane_plugin.hpp"

namespace opaque {

double decode(bp_type type, const std::byte* at);        // one element of a plain float type
void encode(bp_type type, double value, std::byte* at);  // rounds to nearest even
void decode_row(bp_type type, const std::byte* row, std::int64_t count, double* out);  // plain or quantized
bool decodable(bp_type type);                                                          // by decode_row

}  // namespace opaque
