#include "tools/runtime.h"

#include <array>
#include <string_view>

#include "core/base/error.h"
#include "plugins/host/host_table.h"

namespace backplane::tools {
namespace {

// Best first: a plugin, or one of its devices.
constexpr std::array<std::string_view, 5> kPreference = {"cuda", "vulkan", "onednn", "cpu:f32", "cpu"};
constexpr std::uint32_t kMostThreads = 1024;

plugins::DeviceRef choose(const plugins::Registry& registry, const DeviceOptions& options) {
  if (options.device) return registry.find_device(*options.device);
  const auto devices = registry.list_devices();
  const plugins::DeviceEntry* best = preferred_device(devices);
  if (!best) {
    throw Error(ErrorCode::kDevice, "no device is available", "",
                "see `backplane devices` for the reasons, or name a device with --device");
  }
  return registry.find_device(best->name);
}

}  // namespace

const plugins::DeviceEntry* preferred_device(std::span<const plugins::DeviceEntry> devices) {
  for (const std::string_view wanted : kPreference) {
    for (const plugins::DeviceEntry& entry : devices) {
      if (entry.available && (entry.name == wanted || entry.plugin == wanted)) return &entry;
    }
  }
  return nullptr;
}

std::shared_ptr<device::Device> open_device(const plugins::DeviceRef& ref) {
  return device::Device::open({&ref.plugin->tables(), ref.plugin->name()}, ref.index);
}

std::string reference_name(DType activation) { return activation == DType::kF64 ? "cpu:f64" : "cpu:f32"; }

Devices open_devices(const plugins::Registry& registry, const DeviceOptions& options) {
  if (options.threads.value_or(1) == 0 || options.threads.value_or(1) > kMostThreads) {
    throw Error(ErrorCode::kUsage, "the number of threads must be 1 to " + std::to_string(kMostThreads), "--threads");
  }
  if (options.threads) plugins::set_host_threads(*options.threads);
  Devices devices;
  const plugins::DeviceRef ref = choose(registry, options);
  devices.chosen = open_device(ref);
  const std::string reference = reference_name(devices.chosen->activation_type());
  devices.reference =
      devices.chosen->name() == reference ? devices.chosen : open_device(registry.find_device(reference));
  return devices;
}

}  // namespace backplane::tools
