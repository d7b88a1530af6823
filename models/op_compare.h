// One step on two executors of the same model, op by op: which op differs most when both are given the same inputs.
#pragma once

#include <string>

#include "core/device/executor.h"
#include "models/load.h"

namespace backplane::models {

struct OpDifference {
  std::string op;    // layers.3.attention.q; empty: nothing could be compared
  double error = 0;  // rms(difference) / rms(value); infinite where one side isn't finite
};

// Runs the step on `first` as it is, and on `second` with the inputs that each op had on the first. Ops that are fused
// on one side only are left out. Both hold the KV contents that the step needs; what the step writes is written. Keeps
// all activations of the step in memory. Throws Error as Model::forward does.
OpDifference compare_ops(LoadedModel& first, LoadedModel& second, const sched::Step& step);

}  // namespace backplane::models
