// What one rendering may use. The defaults are far above any real chat template and end a hostile one in about a
// second.
#pragma once

#include <cstddef>
#include <cstdint>

namespace backplane::text::jinja {

struct Limits {
  std::uint64_t steps = 20'000'000;          // evaluated nodes, plus the elements and bytes that built-ins look at
  std::uint64_t bytes = 256ull << 20;        // all values ever made, whether or not they have been freed again
  std::uint64_t output_bytes = 64ull << 20;  // the rendered text
  int depth = 2500;                          // nested evaluations: blocks, expressions, macro calls
};

inline constexpr std::int64_t kMaxRange = 100'000;         // elements of range(), as Jinja's sandbox
inline constexpr int kMaxValueDepth = 200;                 // lists in lists in ...
inline constexpr int kMaxTreeDepth = 200;                  // nesting of blocks and expressions in the source
inline constexpr std::size_t kMaxSourceBytes = 256 << 10;  // of a template

}  // namespace backplane::text::jinja
