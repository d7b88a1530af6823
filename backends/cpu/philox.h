// Philox4x32-10, the counter-based random numbers of Salmon, Moraes, Dror and Shaw (SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace backplane::cpu {

inline std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t even = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t odd = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(odd >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(odd),
               static_cast<std::uint32_t>(even >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(even)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// A number in [0, 1) with 53 random bits: the one of token `counter` in a request with that seed.
inline double uniform(std::uint64_t seed, std::uint64_t counter) {
  const auto x = philox4x32({static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0},
                            {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return static_cast<double>((std::uint64_t{x[1]} << 32 | x[0]) >> 11) * 0x1p-53;
}

}  // namespace backplane::cpu
