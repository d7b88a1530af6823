// Opens devices of the plugins in the build tree.
#pragma once

#include <memory>
#include <string>

#include "core/device/device.h"
#include "plugins/host/registry.h"

namespace backplane::test {

inline const plugins::Registry& registry() {
  static const plugins::Registry instance({{}, "", {BACKPLANE_PLUGIN_OUTPUT_DIR}});
  return instance;
}

inline std::shared_ptr<device::Device> open_device(const std::string& name) {
  const plugins::DeviceRef ref = registry().find_device(name);
  return device::Device::open({&ref.plugin->tables(), ref.plugin->name()}, ref.index);
}

}  // namespace backplane::test
