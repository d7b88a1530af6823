#include "plugins/host/registry.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "core/base/abi_call.h"
#include "core/base/error.h"
#include "plugins/host/manifest.h"

namespace backplane::plugins {
namespace {

constexpr std::uint32_t kMostDevices = 256;

template <std::size_t N>
std::string_view fixed_text(const char (&text)[N]) {
  return {text, ::strnlen(text, N)};
}

// One device of a loaded plugin. `others` are the plugin's devices before it.
DeviceEntry describe(const Plugin& plugin, std::uint32_t index, const std::vector<DeviceEntry>& others) {
  DeviceEntry entry;
  entry.plugin = plugin.name();
  entry.index = index;
  entry.name = plugin.name() + ":" + std::to_string(index);
  entry.available = true;
  const auto refuse = [&entry](std::string reason) {
    entry.available = false;
    entry.reason = std::move(reason);
  };
  if (plugin.tables().driver->describe) {
    bp_device_info info{};
    info.size = sizeof(info);
    AbiCall call;
    const bp_status status = plugin.tables().driver->describe(call.context(), index, &info);
    const std::string_view name = fixed_text(info.name);
    if (is_device_name(name)) entry.name = plugin.name() + ":" + std::string(name);
    if (status != BP_OK) {
      const std::string given = call.text();
      refuse(given.empty() ? status_text(status) : given);
      return entry;
    }
    if (!is_device_name(name)) {
      refuse("the plugin gives it an invalid name");
      return entry;
    }
    entry.description = printable(fixed_text(info.description), sizeof(info.description));
    entry.memory_total = info.memory_total;
  }
  if (std::any_of(others.begin(), others.end(), [&](const auto& other) { return other.name == entry.name; })) {
    refuse("the plugin gives this name to two devices");
  }
  return entry;
}

// Throws Error when the plugin can't count.
std::vector<DeviceEntry> devices_of(const Plugin& plugin) {
  AbiCall call;
  std::uint32_t count = 0;
  const bp_status status = plugin.tables().driver->count(call.context(), &count);
  if (status != BP_OK) {
    const std::string given = call.text();
    throw Error(ErrorCode::kDevice, given.empty() ? status_text(status) : given);
  }
  if (count > kMostDevices) throw Error(ErrorCode::kDevice, "claims to have " + std::to_string(count) + " devices");
  if (count == 0) throw Error(ErrorCode::kDevice, "has no device here");
  std::vector<DeviceEntry> devices;
  for (std::uint32_t index = 0; index < count; ++index) devices.push_back(describe(plugin, index, devices));
  return devices;
}

DeviceEntry unavailable(const FoundPlugin& found, std::string reason) {
  DeviceEntry entry;
  entry.name = entry.plugin = found.name;
  entry.description = found.description;
  entry.reason = std::move(reason);
  return entry;
}

}  // namespace

Registry::Registry(const SearchOptions& options) : found_(find_plugins(options)) {}

const FoundPlugin* Registry::find_plugin(std::string_view name) const {
  const auto found = std::find_if(found_.begin(), found_.end(), [&](const auto& each) { return each.name == name; });
  return found == found_.end() ? nullptr : &*found;
}

std::shared_ptr<const Plugin> Registry::load(std::string_view name) const {
  if (const FoundPlugin* found = find_plugin(name)) return load_plugin(*found);
  std::string existing;
  for (const FoundPlugin& found : found_) existing += (existing.empty() ? "" : ", ") + found.name;
  throw Error(ErrorCode::kDevice, "no plugin is called '" + printable(name, 64) + "'", {},
              existing.empty() ? "no plugin was found: give one with --plugin" : "there are: " + existing);
}

std::vector<DeviceEntry> Registry::list_devices() const {
  std::vector<DeviceEntry> all;
  for (const FoundPlugin& found : found_) {
    try {
      for (DeviceEntry& entry : devices_of(*load_plugin(found))) {
        if (entry.description.empty()) entry.description = found.description;
        all.push_back(std::move(entry));
      }
    } catch (const std::exception& error) {
      all.push_back(unavailable(found, error.what()));
    }
  }
  return all;
}

DeviceRef Registry::find_device(std::string_view name) const {
  const std::string_view plugin_name = name.substr(0, name.find(':'));
  const FoundPlugin* found = find_plugin(plugin_name);
  if (!found) no_such_device(name);
  const auto plugin = load_plugin(*found);
  std::vector<DeviceEntry> devices;
  try {
    devices = devices_of(*plugin);
  } catch (const Error& error) {
    throw Error(ErrorCode::kDevice, error.what(), found->name, "choose another with --device, see `backplane devices`");
  }
  const bool any = plugin_name.size() == name.size();
  for (const DeviceEntry& entry : devices) {
    if (any ? entry.available : entry.name == name) {
      if (!entry.available) throw Error(ErrorCode::kDevice, entry.reason, entry.name);
      return {plugin, entry.index, entry.name};
    }
  }
  if (any) throw Error(ErrorCode::kDevice, devices.front().reason, devices.front().name);
  no_such_device(name);
}

void Registry::no_such_device(std::string_view name) const {
  std::string existing;
  for (const DeviceEntry& entry : list_devices()) {
    if (entry.available) existing += (existing.empty() ? "" : ", ") + entry.name;
  }
  throw Error(ErrorCode::kDevice, "no device is called '" + printable(name, 64) + "'", {},
              existing.empty() ? "none is available: see `backplane devices`" : "there are: " + existing);
}

}  // namespace backplane::plugins
