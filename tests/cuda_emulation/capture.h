// Streams under capture, and the graphs that come of them.
#pragma once

#include <map>
#include <thread>
#include <vector>

#include "tests/cuda_emulation/runtime.h"

namespace cuda_emulation {

/// How much of each captured stream something comes after.
using Progress = std::map<const CUstream_st*, std::size_t>;

struct Capture {
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  const CUstream_st* origin;
  bool invalid = false;
  std::vector<Operation> operations;             ///< in the order of the calls, which keeps every dependency
  Progress tails;                                ///< operations of each stream
  std::map<const CUstream_st*, Progress> known;  ///< what each stream's next operation comes after
};

/// Appends an operation to a stream's capture. The state's mutex must be held.
void capture_operation(CUstream_st& stream, Operation operation);

/// Whether a call that is forbidden while capturing meets a capture that this thread would disturb; spoils it.
bool disturbs_capture();
/// The same for a call that waits for a whole device, which no mode of capture allows.
bool disturbs_captures_of(int device);

}  // namespace cuda_emulation

struct CUgraph_st {
  std::vector<cuda_emulation::Operation> operations;
};
struct CUgraphExec_st {
  std::shared_ptr<const std::vector<cuda_emulation::Operation>> operations;
};
struct CUevent_st {
  bool timed = true;
  cuda_emulation::Mark mark;  ///< empty until recorded
  std::shared_ptr<std::chrono::steady_clock::time_point> time;
  std::shared_ptr<cuda_emulation::Capture> capture;  ///< of the last record, if it was captured
  cuda_emulation::Progress captured;
};
