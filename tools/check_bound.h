// How far an op of a model may be from the exact result, for the arithmetic that its device declares.
#pragma once

#include "tests/conformance/bounds.h"
#include "tools/check_trace.h"

namespace backplane::tools::check {

// One run of an op: the site is the reference's, for its parameters and weights.
struct OpRun {
  device::Executor& executor;  // the reference's
  const device::Site& site;
  const sched::Step& step;
  const OpValues& values;
  const KvValues* kv = nullptr;    // of the layer, for attention
  DType quantized = DType::kNone;  // what activations are rounded to first
};

// A bound for every element of values.out; 0 where an op only moves numbers. Throws Error{kInternal} for an op that
// models don't issue by itself.
Array bound_of(const conformance::Arithmetic& arithmetic, const OpRun& run);

// Ops whose result is the nearest number of the type.
bool is_copy(std::uint32_t code);

}  // namespace backplane::tools::check
