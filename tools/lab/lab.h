// All experiments on one loaded model, as one report.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/device/device.h"
#include "models/load.h"
#include "tools/lab/figures.h"
#include "tools/lab/setup.h"

namespace backplane::lab {

struct LabRun {
  const models::ModelFile& file;
  models::LoadedModel& model;
  const device::Device& device;                      // the one that holds the matrices, or the first of them
  std::shared_ptr<const text::Tokenizer> tokenizer;  // may be null
  std::string device_name;
  std::uint32_t threads = 0;  // of the host
  models::MemoryEstimate memory = {};
  bool quick = false;
  std::uint64_t seed = 1;
  std::optional<Trace> trace = {};  // nothing: drawn at random
  std::string date = {};
  // Called before each experiment; gives what is called while it runs.
  std::function<Progress(const std::string& title)> progress = {};
};

// {model, device, probe, experiments: {cache, phases, context, padding, logits, batching}, fallbacks, ...}. What there
// is no room for is skipped: its experiment has "skipped", the reason, and nothing else. Each other one has "findings",
// the sentences of the page. Throws what the model throws, and what `progress` does.
Json run_lab(const LabRun& run);

}  // namespace backplane::lab
