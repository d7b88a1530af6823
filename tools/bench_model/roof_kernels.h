// Loops that do nothing but arithmetic, on registers: the most that one thread can compute.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace backplane::bench {

struct ArithmeticKernel {
  double (*run)(std::uint64_t rounds);  // what it returns depends on all rounds; any thread
  double operations;                    // of a round; a multiplication and an addition are two
  std::string_view instructions;
};

// The fastest that this processor can run: x * y + z in float32.
ArithmeticKernel f32_kernel();
// Products of 8-bit integers, added up in 32 bits; nothing for processors that no kernel is written for.
std::optional<ArithmeticKernel> int8_kernel();

}  // namespace backplane::bench
