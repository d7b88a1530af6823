// Rotary settings from GGUF metadata and tensors.
#pragma once

#include <string_view>

#include "core/formats/gguf.h"
#include "core/formats/rope_settings.h"

namespace backplane::formats {

// Reads {arch}.rope.* and the tensors rope_freqs.weight, rope_factors_long.weight, rope_factors_short.weight. A key or
// a scaling type that isn't known throws Error{kBadFile} naming it. `sliding` is set when {arch}.rope.freq_base_swa is
// there.
RopeSet rope_settings_from_gguf(const Gguf& gguf, std::string_view arch);

}  // namespace backplane::formats
