// What the processor and its memory can do at most, probed.
#pragma once

#include <optional>
#include <string>

#include "core/base/thread_pool.h"

namespace backplane::bench {

struct Roof {
  double per_second = 0;  // the best of the rounds: whatever else the machine does makes it less, never more
  std::string probe;      // what was run
};

struct Roofs {
  Roof read;                 // bytes from memory
  Roof f32;                  // operations
  std::optional<Roof> int8;  // operations
};

// Takes about a second, all threads of the pool, and twice the last-level cache in memory, from 256 MB to 1 GB.
Roofs probe_roofs(ThreadPool& pool);

}  // namespace backplane::bench
