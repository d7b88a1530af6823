// Holds a DecoderSpec against the container it was read for.
#pragma once

#include "core/formats/container.h"
#include "models/decoder_spec.h"

namespace backplane::models {

// Throws Error{kBadFile} naming the first thing that is wrong: sizes that can't be, a tensor that is missing, has
// another shape or a type nobody can compute with, and a tensor that the spec doesn't use (it would change the result).
void check_spec(const DecoderSpec& spec, const formats::Container& container);

}  // namespace backplane::models
