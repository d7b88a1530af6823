// Philox4x32-10: random numbers that are a function of a counter and a key, so that any of them can be had at any time,
// on any device (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
#pragma once

#include <array>
#include <cstdint>

namespace backplane::sample {

std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

// A number in [0, 1): 53 bits of the block with counter {counter, 0} and key seed, as bp_sample_args defines it. The
// token n of answer `choice` of a request is drawn with counter choice 2^32 + n.
double uniform(std::uint64_t seed, std::uint64_t counter);

}  // namespace backplane::sample
