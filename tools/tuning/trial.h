// Runs the beginning of a model with several settings.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/load.h"
#include "plugins/host/registry.h"
#include "tools/tuning/choice.h"
#include "tools/tuning/store.h"

namespace backplane::tuning {

// Numbers of threads that are worth trying beside all `processors`: as many as there are cores, where those have
// several threads each, and half of them; fewest last. `cores`: 0 if unknown.
std::vector<unsigned> fewer_threads(unsigned processors, unsigned cores);
// Cores of this machine that the process may use.
unsigned usable_cores();

// So many layers of it are tried that their weights don't fit into a cache, but a load takes no longer than needed.
std::uint32_t trial_layers(const models::ModelFile& file);

// Part of the model on a device for each way to open it, all alive at once, until it is destroyed.
class Trial {
 public:
  // `what` as plugins::Manifest::tune. Options that the device refuses, or that make no difference, are left out.
  // Throws as models::load.
  Trial(const plugins::Registry& registry, const plugins::DeviceRef& device, const std::vector<std::string>& what,
        const models::ModelFile& file, const models::LoadOptions& load);
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  // The first one is the default.
  const std::vector<Setting>& settings() const { return settings_; }
  // Runs a prompt and some greedy tokens. Throws what the model throws, and kInterrupted.
  Sample measure(std::size_t setting);

 private:
  struct Opened;
  std::vector<std::unique_ptr<Opened>> opened_;
  std::vector<Setting> settings_;
  std::vector<std::size_t> opened_of_;  // by setting
};

}  // namespace backplane::tuning
