// The devices that a command computes on.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/device/device.h"
#include "plugins/host/registry.h"
#include "tools/options.h"

namespace backplane::tools {

// The device to use when the user names none: the first of the best kind that is available. Plugins that aren't in the
// order of preference (the user's own, the template) have to be named. Nullptr: none.
const plugins::DeviceEntry* preferred_device(std::span<const plugins::DeviceEntry> devices);

std::shared_ptr<device::Device> open_device(const plugins::DeviceRef& ref);

// The cpu plugin's device that runs what another can't: f64 when `activation` is F64, else f32.
std::string reference_name(DType activation);

struct Devices {
  std::shared_ptr<device::Device> chosen;
  std::shared_ptr<device::Device> reference;  // may be the same object
};

// Sets the number of threads, finds and opens. Throws Error{kDevice}.
Devices open_devices(const plugins::Registry& registry, const DeviceOptions& options);

}  // namespace backplane::tools
