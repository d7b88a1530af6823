// The plugins of this process and their devices.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/host/plugin.h"
#include "plugins/host/search_path.h"

namespace backplane::plugins {

// A device, or, where a plugin can't say what it has, the plugin itself with the reason.
struct DeviceEntry {
  std::string name;    // "cpu:f32"; of a plugin that can't start: "cuda"
  std::string plugin;  // "cpu"
  std::string description;
  bool available = false;
  std::string reason;              // why not; empty when available
  std::uint64_t memory_total = 0;  // bytes, 0: unknown
  std::uint32_t index = 0;         // for driver->open
};

struct DeviceRef {
  std::shared_ptr<const Plugin> plugin;
  std::uint32_t index = 0;
  std::string name;  // "cpu:f32"
};

// Free-threaded. Plugins that were loaded stay so after the registry is gone.
class Registry {
 public:
  // Reads manifests and loads nothing. Throws as find_plugins does.
  explicit Registry(const SearchOptions& options);

  const std::vector<FoundPlugin>& plugins() const { return found_; }

  // Throws Error{kDevice}: no such plugin (with those that exist), or why it can't be loaded.
  std::shared_ptr<const Plugin> load(std::string_view name) const;

  // Loads every plugin and asks for its devices; opens none. What is wrong with one plugin is in its entry, and never
  // thrown.
  std::vector<DeviceEntry> list_devices() const;

  // "cpu:f64", or "cpu" for the first device of that plugin that is available. Loads that plugin only. Throws
  // Error{kDevice} with what exists.
  DeviceRef find_device(std::string_view name) const;

 private:
  const FoundPlugin* find_plugin(std::string_view name) const;
  [[noreturn]] void no_such_device(std::string_view name) const;

  std::vector<FoundPlugin> found_;
};

}  // namespace backplane::plugins
