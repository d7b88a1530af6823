#include "tools/runtime.h"

#include <array>
#include <charconv>
#include <string_view>

#include "core/base/error.h"
#include "plugins/host/host_table.h"

namespace backplane::tools {
namespace {

// Best first: a plugin, or one of its devices.
constexpr std::array<std::string_view, 5> kPreference = {"cuda", "vulkan", "onednn", "cpu:f32", "cpu"};
constexpr std::uint32_t kMostThreads = 1024;

// "DEVICE" or "DEVICE=LAYERS".
models::DeviceChoice open_choice(const plugins::Registry& registry, std::string_view text, const Opening& opening) {
  models::DeviceChoice choice;
  const std::size_t equals = text.find('=');
  if (equals != std::string_view::npos) {
    const std::string_view number = text.substr(equals + 1);
    std::uint32_t layers = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), layers);
    if (error != std::errc() || end != number.data() + number.size()) {
      throw Error(ErrorCode::kUsage, "not a number of layers", std::string(text), "give DEVICE=LAYERS");
    }
    choice.layers = layers;
  }
  choice.device = open_device(registry.find_device(text.substr(0, equals)), opening);
  return choice;
}

void append(device::Devices& out, const Devices& devices) {
  for (const models::DeviceChoice& choice : devices.chosen) out.push_back(choice.device);
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

std::shared_ptr<device::Device> open_device(const plugins::DeviceRef& ref, const Opening& opening) {
  return device::Device::open({&ref.plugin->tables(), ref.plugin->name()}, ref.index, opening.deterministic,
                              opening.options);
}

std::string reference_name(DType activation) { return activation == DType::kF64 ? "cpu:f64" : "cpu:f32"; }

Devices open_list(const plugins::Registry& registry, std::string_view names, const Opening& opening) {
  Devices devices;
  while (true) {
    const std::size_t comma = names.find(',');
    devices.chosen.push_back(open_choice(registry, names.substr(0, comma), opening));
    if (comma == std::string_view::npos) break;
    names.remove_prefix(comma + 1);
  }
  const std::string reference = reference_name(devices.first().activation_type());
  // One that was chosen as the last serves itself.
  const auto& last = devices.chosen.back().device;
  devices.reference =
      last->name() == reference ? last : open_device(registry.find_device(reference), {{}, opening.deterministic});
  return devices;
}

std::string Devices::name() const {
  std::string names;
  for (const models::DeviceChoice& choice : chosen) {
    if (!names.empty()) names += ',';
    names += choice.device->name();
  }
  return names;
}

std::string PhaseDevices::name() const { return decode ? prefill.name() + " then " + decode->name() : prefill.name(); }

device::Devices PhaseDevices::all() const {
  device::Devices out;
  for (const Devices* each : {&prefill, decode ? &*decode : nullptr, failover ? &*failover : nullptr}) {
    if (each) append(out, *each);
  }
  return out;
}

device::Devices PhaseDevices::with_shadow() const {
  device::Devices out = all();
  if (shadow) append(out, *shadow);
  return out;
}

std::string device_or_default(const plugins::Registry& registry, const DeviceOptions& options) {
  if (options.device) return *options.device;
  const auto devices = registry.list_devices();
  if (const plugins::DeviceEntry* best = preferred_device(devices)) return best->name;
  throw Error(ErrorCode::kDevice, "no device is available", "",
              "see `backplane devices` for the reasons, or name a device with --device");
}

PhaseDevices open_devices(const plugins::Registry& registry, const DeviceOptions& options,
                          const std::string& plugin_options) {
  if (options.threads.value_or(1) == 0 || options.threads.value_or(1) > kMostThreads) {
    throw Error(ErrorCode::kUsage, "the number of threads must be 1 to " + std::to_string(kMostThreads), "--threads");
  }
  options.checked_shadow_rate();
  if (options.threads) plugins::set_host_threads(*options.threads);
  const auto either = [&](const std::optional<std::string>& phase) {
    return phase ? *phase : device_or_default(registry, options);
  };
  const Opening plain{{}, options.deterministic};
  PhaseDevices devices{open_list(registry, either(options.prefill_device), {plugin_options, options.deterministic}),
                       std::nullopt, std::nullopt, std::nullopt};
  if (options.prefill_device || options.decode_device) {
    devices.decode = open_list(registry, either(options.decode_device), plain);
  }
  if (options.failover) devices.failover = open_list(registry, *options.failover, plain);
  if (options.shadow) devices.shadow = open_list(registry, *options.shadow, plain);
  return devices;
}

}  // namespace backplane::tools
