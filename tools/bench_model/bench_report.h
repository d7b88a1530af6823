// The report of `bench`: one JSON object, and the same for a terminal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench_model/measure.h"
#include "tools/bench_model/roofs.h"
#include "tools/lab/figures.h"

namespace backplane::bench {

using lab::Json;

struct Skipped {
  Case what;
  std::string reason;
};

struct Report {
  const models::ModelFile& file;
  models::LoadedModel& model;
  std::string device;
  unsigned threads = 0;
  double load_s = 0;
  models::MemoryEstimate memory;
  std::uint64_t peak_bytes = 0;  // resident, before the roofs were probed
  std::vector<Measured> measured;
  std::vector<Skipped> skipped;
  std::vector<OpTable> ops;
  std::string no_ops;          // why there are none
  std::optional<Roofs> roofs;  // nothing: not asked for
  const lab::StepWork& work;
  std::uint32_t step_tokens = 0;  // at most, that the model was loaded for
};

Json report_json(const Report& report);
std::string report_text(const Json& report);

}  // namespace backplane::bench
