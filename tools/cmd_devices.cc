// backplane devices: what can compute here, and why the rest can't.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "plugins/host/registry.h"
#include "tools/commands.h"
#include "tools/json_lines.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/runtime.h"

namespace backplane::tools {
namespace {

using Json = nlohmann::ordered_json;

struct DevicesOptions {
  PluginOptions plugins;
  bool json = false;
};

Json type_names(const bp_type_set& set) {
  Json names = Json::array();
  for (std::uint32_t number = 1; number < 64 * std::size(set.bits); ++number) {
    const auto type = static_cast<DType>(number);
    if (device::contains(set, type) && dtype_info(type).type == type) names.push_back(dtype_name(type));
  }
  return names;
}

Json flag_names(std::uint64_t flags) {
  constexpr std::pair<std::uint64_t, const char*> kNames[] = {
      {BP_CAP_HOST_VISIBLE, "host_visible"},
      {BP_CAP_UNIFIED, "unified"},
      {BP_CAP_DETERMINISTIC, "deterministic"},
      {BP_CAP_BATCH_INVARIANT, "batch_invariant"},
  };
  Json names = Json::array();
  for (const auto& [bit, name] : kNames) {
    if ((flags & bit) != 0) names.push_back(name);
  }
  return names;
}

Json describe_caps(const bp_caps& caps) {
  return {{"activation_type", dtype_name(static_cast<DType>(caps.activation_type))},
          {"activation_types", type_names(caps.activation_types)},
          {"weight_types", type_names(caps.weight_types)},
          {"kv_types", type_names(caps.kv_types)},
          {"flags", flag_names(caps.flags)},
          {"max_head_dim", caps.max_head_dim},
          {"max_tokens", caps.max_tokens},
          {"max_buffer_bytes", caps.max_buffer_bytes}};
}

// Capabilities are known to an open device only; one that fails to open is not available.
Json device_json(const plugins::Registry& registry, plugins::DeviceEntry entry) {
  Json capabilities, free;
  if (entry.available) {
    try {
      const auto opened = open_device(registry.find_device(entry.name));
      capabilities = describe_caps(opened->caps());
      if (opened->caps().memory_free != 0) free = opened->caps().memory_free;
    } catch (const Error& error) {
      entry.available = false;
      entry.reason = error.what();
    }
  }
  return {{"name", entry.name},
          {"plugin", entry.plugin},
          {"description", entry.description},
          {"available", entry.available},
          {"reason", entry.available ? Json() : Json(entry.reason)},
          {"memory", {{"total", entry.memory_total != 0 ? Json(entry.memory_total) : Json()}, {"free", free}}},
          {"capabilities", capabilities}};
}

void print_table(Output& out, const std::vector<plugins::DeviceEntry>& devices) {
  std::size_t width = 6;
  for (const auto& entry : devices) width = std::max(width, entry.name.size());
  for (const auto& entry : devices) {
    const std::string memory = entry.memory_total != 0 ? format_bytes(entry.memory_total) : "";
    out << fmt::format("{:<{}}  {:>9}  {}\n", entry.name, width, memory, entry.description);
    if (!entry.available) out << fmt::format("{:<{}}  {:>9}  not available: {}\n", "", width, "", entry.reason);
  }
  if (devices.empty()) out << "No plugin was found. Give one with --plugin, or set BACKPLANE_PLUGIN_PATH.\n";
}

int devices(const DevicesOptions& options) {
  const plugins::Registry registry(options.plugins.search());
  const auto entries = registry.list_devices();
  Output out;
  if (options.json) {
    Json list = Json::array();
    for (const auto& entry : entries) list.push_back(device_json(registry, entry));
    out << json_text(Json{{"devices", list}}) << '\n';
  } else {
    print_table(out, entries);
  }
  out.flush();
  return 0;
}

}  // namespace

void add_devices(CommandLine& line) {
  auto options = std::make_shared<DevicesOptions>();
  Command command = line.command("devices", "List the devices that plugins offer, and why others can't be used");
  add_options(command, options->plugins);
  command.flag("--json", options->json, "One JSON object, with the capabilities of each device")
      .example("backplane devices --json")
      .action([options] { return devices(*options); });
}

}  // namespace backplane::tools
