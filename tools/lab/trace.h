// When requests arrive, and how long they are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tools/lab/sizes.h"

namespace backplane::lab {

struct TraceRequest {
  double arrival_s = 0;         // after the first one, which is at 0; ascending
  std::uint32_t prompt = 1;     // tokens
  std::uint32_t generated = 1;  // tokens
};

struct Trace {
  std::string source;  // for the reader
  std::vector<TraceRequest> requests;
};

// Lengths and gaps distributed as in the conversations of the Azure LLM inference trace of 2023 (19,366 requests):
// lengths are lognormal with the means and deviations of its logarithms, within its smallest and largest; the gaps
// between arrivals exponential. The same seed gives the same trace everywhere.
Trace random_trace(std::uint32_t requests, std::uint64_t seed);

// A CSV file with the columns TIMESTAMP (2023-11-16 18:15:46.6805900), ContextTokens, GeneratedTokens, in order of
// time: its first `most` requests. Throws Error{kBadFile} naming the line.
Trace read_trace(const std::filesystem::path& path, std::size_t most);
Trace parse_trace(std::string_view text, const std::string& name, std::size_t most);

// A trace made to fit a model and a device.
struct ScaledTrace {
  std::vector<TraceRequest> requests;
  double prompt_scale = 1;  // by which the lengths of prompts were multiplied,
  double reply_scale = 1;   // of what is generated,
  double time_scale = 1;    // and arrival times
  double serial_s = 0;      // the expected time of serving them one after another
};

// The first requests: at least as many as sizes.requests (as far as there are), more while serving them one after
// another is expected to take less than sizes.seconds. Lengths are shortened until they fit the context and, with
// sizes.requests, the seconds (then prompts more than replies, of which too little would be left); requests arrive in a
// third of the time that serving one after another takes.
ScaledTrace scale_trace(const Trace& trace, const BatchingSizes& sizes, const Speed& speed, const Room& room);

}  // namespace backplane::lab
