// How long prompts and replies are where people talk to a model.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace backplane::test {

struct TraceLengths {
  std::uint32_t prompt = 0, generated = 0;  // tokens
};

// `count` of them at random: of Azure's conversation trace (2023) where the shared data is; else drawn from a
// distribution with the quantiles of that trace.
std::vector<TraceLengths> trace_lengths(std::size_t count, std::mt19937& random);

}  // namespace backplane::test
