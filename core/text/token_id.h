// The number of a token in a vocabulary.
#pragma once

#include <cstdint>

namespace backplane::text {

using TokenId = std::int32_t;

// "There is no such token", for the special ids a vocabulary may lack.
inline constexpr TokenId kNoToken = -1;

}  // namespace backplane::text
