// The devices that a command computes on.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/device/device.h"
#include "models/load.h"
#include "plugins/host/registry.h"
#include "tools/options.h"

namespace backplane::tools {

// The device to use when the user names none: the first of the best kind that is available. Plugins that aren't in the
// order of preference (the user's own, the template) have to be named. Nullptr: none.
const plugins::DeviceEntry* preferred_device(std::span<const plugins::DeviceEntry> devices);

// How devices are opened.
struct Opening {
  std::string options = {};    // for the plugin: "key=value,..."
  bool deterministic = false;  // BP_OPEN_DETERMINISTIC
};
std::shared_ptr<device::Device> open_device(const plugins::DeviceRef& ref, const Opening& opening = {});

// The cpu plugin's device that runs what another can't: f64 when `activation` is F64, else f32.
std::string reference_name(DType activation);

// The devices of one model: its layers', and the reference that runs what they can't (it may be one of them).
struct Devices {
  std::vector<models::DeviceChoice> chosen;
  std::shared_ptr<device::Device> reference;

  device::Device& first() const { return *chosen.front().device; }
  std::string name() const;  // "opaque:f32,cpu:f32"
};

// A list as --device takes it: "A" or "A=LAYERS,B". Throws Error: kDevice; kUsage for a wrong number of layers.
Devices open_list(const plugins::Registry& registry, std::string_view names, const Opening& opening = {});

// What --device, --prefill-device, --decode-device, --failover and --shadow name. With one of the middle ones, or a
// shadow, the model is loaded twice; on the failover devices only when others are lost.
struct PhaseDevices {
  Devices prefill;
  std::optional<Devices> decode;
  std::optional<Devices> failover;
  std::optional<Devices> shadow;

  std::string name() const;             // without failover and shadow
  device::Devices all() const;          // that must agree on pages and steps, but for the shadow
  device::Devices with_shadow() const;  // and with it
};

// What --device says, or the name of preferred_device(). Throws Error{kDevice}: there is none.
std::string device_or_default(const plugins::Registry& registry, const DeviceOptions& options);

// Sets the number of threads, finds and opens. `plugin_options` are for the plugin of --device. Throws Error: kDevice;
// kUsage for names with a wrong number of layers.
PhaseDevices open_devices(const plugins::Registry& registry, const DeviceOptions& options,
                          const std::string& plugin_options = {});

}  // namespace backplane::tools
