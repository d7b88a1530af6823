// What devices can do with a model: for `inspect`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "models/load.h"
#include "plugins/host/registry.h"
#include "tools/options.h"

namespace backplane::tools {

// Ops of a model that run in one place for one reason.
struct OpPlacement {
  std::string op;
  std::string device;
  std::uint64_t count = 0;  // in a step
  std::string reason;       // why not on the device that was asked; empty when it is that one
};

struct DeviceSupport {
  std::string device;  // or the plugin, where its devices aren't known
  std::string plugin;
  std::optional<bool> runs = {};  // nothing: not known without opening a driver
  std::string reason = {};        // why not, or why it isn't known
  // Whether it computes with the type as it is in the file; otherwise the cpu plugin converts it first.
  std::vector<std::pair<std::string, std::optional<bool>>> types = {};
  std::vector<OpPlacement> ops = {};                  // only of a device that was asked
  std::optional<models::MemoryEstimate> memory = {};  // likewise
};

// The distinct types of a container's tensors, by name.
using TypeNames = std::set<std::pair<std::string, std::optional<DType>>>;

// Of every plugin that was found, without opening a driver: the cpu plugin, which has none, is loaded; of the others
// the manifests are read. `why_no_model` says why the container is no model, or is empty.
std::vector<DeviceSupport> support_by_manifests(const plugins::Registry& registry, const TypeNames& types,
                                                const std::string& why_no_model);

// Opens the device and plans the model on it.
DeviceSupport support_by_planning(const plugins::Registry& registry, const DeviceOptions& options,
                                  const TypeNames& types, const models::ModelFile& file);

}  // namespace backplane::tools
