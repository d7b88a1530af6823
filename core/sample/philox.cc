#include "core/sample/philox.h"

namespace backplane::sample {

std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  // The paper's multipliers, and its key increments: the golden ratio and sqrt(3) - 1 in 32 bits.
  constexpr std::uint64_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = kMultiply0 * counter[0], b = kMultiply1 * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

double uniform(std::uint64_t seed, std::uint64_t counter) {
  const auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const auto high = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); };
  const auto x = philox4x32_10({low(counter), high(counter), 0, 0}, {low(seed), high(seed)});
  const std::uint64_t bits = (std::uint64_t{x[1]} << 32 | x[0]) >> 11;
  return static_cast<double>(bits) / 9007199254740992.0;  // 2^53
}

}  // namespace backplane::sample
