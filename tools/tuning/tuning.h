// Threads and kernels that suit this machine: tried once, remembered in the cache folder.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/load.h"
#include "plugins/host/registry.h"
#include "tools/options.h"
#include "tools/tuning/choice.h"
#include "tools/tuning/store.h"

namespace backplane::tuning {

// After so many trials that something disturbed, the default is kept for good: a machine that is always busy would try
// at every start.
inline constexpr std::uint32_t kMostDisturbed = 3;

// How busy the machine's processors were with other work: seconds of processor time since it started, from the text of
// /proc/stat, less what this process used. `ticks`: of the file's numbers in a second.
double others_seconds(const std::string& stat, double ticks, double own_seconds);
// Whether so much work of others in that time may have spoiled a trial.
bool was_disturbed(double others, double elapsed);

// A trial that was made.
struct Tried {
  Setting setting;
  std::string why;
  bool disturbed = false;
};

// Whether a setting is one that a trial here can end with: one of `options`, no more threads than `processors`. The
// file may say anything.
bool is_possible(const Setting& setting, const std::vector<std::string>& options, unsigned processors);

// The setting to use, and in `why` a line for people: from the store where it has an entry of this build that
// `possible` accepts, else from `trial`, which is then kept. Throws what the trial throws.
struct Tuned {
  Setting setting;
  std::string why;
};
Tuned remembered_or_tried(const Store& store, const std::string& key, const std::string& build,
                          const std::function<bool(const Setting&)>& possible, const std::function<Tried()>& trial);

// For a model that is to be loaded on `device`, by the options a user gave. The default setting where those say what to
// use (--threads, several devices), where nothing is worth trying, where --no-tune or the environment variable
// BACKPLANE_NO_TUNE (not empty) forbids it, where there is no place to remember it, and where a trial fails. Throws
// Error{kInterrupted}.
Tuned tune(const plugins::Registry& registry, const std::string& device, const tools::DeviceOptions& options,
           const models::ModelFile& file, const models::LoadOptions& load);

}  // namespace backplane::tuning
