// Plays a request trace against an engine, under one way of batching.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "tools/lab/setup.h"
#include "tools/lab/trace.h"

namespace backplane::lab {

enum class Policy {
  kOne,        // one request after another
  kStatic,     // those who wait, up to the seats, begin together; the next ones when all of them have ended
  kContinuous  // whoever waits takes a seat as soon as one is free
};

// Times count from the trace's beginning.
struct Served {
  double arrival_s = 0, first_token_s = 0, end_s = 0;
  std::vector<TokenId> ids;
};

// Sequences in the steps from this time on.
struct Occupancy {
  double at_s = 0;
  std::uint32_t sequences = 0;
};

struct Replayed {
  std::vector<Served> requests;      // in the trace's order
  std::vector<Occupancy> occupancy;  // where it changes; the last one is 0
  std::uint64_t steps = 0;
  double busy_s = 0;        // in steps
  double seat_seconds = 0;  // of steps, each times its sequences
  double end_s = 0;
};

// The clock is the time that steps really took; where nothing is left to do before the next arrival, it is put forward.
// Throws what the engine says of a request that failed. `on_token` is called for each token.
Replayed replay(const Setup& setup, std::span<const TraceRequest> trace, Policy policy, std::uint32_t seats,
                const std::function<void()>& on_token);

}  // namespace backplane::lab
