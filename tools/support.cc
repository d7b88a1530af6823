#include "tools/support.h"

#include <map>
#include <tuple>

#include "core/base/error.h"
#include "tools/runtime.h"

namespace backplane::tools {
namespace {

constexpr std::string_view kNoDriver = "cpu";  // the plugin that may be loaded: it talks to no hardware driver

void set_types(DeviceSupport& support, const TypeNames& types, const device::Device* device) {
  for (const auto& [name, type] : types) {
    std::optional<bool> takes;
    if (!type) takes = false;
    if (type && device) takes = device->takes_weight_type(*type);
    support.types.emplace_back(name, takes);
  }
}

std::vector<DeviceSupport> of_cpu(const plugins::Registry& registry, const TypeNames& types,
                                  const std::string& why_no_model) {
  std::vector<DeviceSupport> all;
  for (const char* name : {"cpu:f32", "cpu:f64"}) {
    const auto device = open_device(registry.find_device(name));
    DeviceSupport support{.device = device->name(), .plugin = std::string(kNoDriver)};
    set_types(support, types, device.get());
    support.runs = why_no_model.empty();
    support.reason = why_no_model;
    all.push_back(std::move(support));
  }
  return all;
}

std::vector<OpPlacement> placements(device::Executor& executor) {
  std::map<std::tuple<std::string, std::string, std::string>, std::uint64_t> counts;
  for (const device::Site& site : executor.sites()) {
    if (site.skipped || (site.fused && !site.native)) continue;  // its parts, or the whole, are listed instead
    const std::string& where = executor.devices()[site.slot]->name();
    ++counts[{std::string(device::op_name(site.code)), where, site.native ? "" : site.reason}];
  }
  std::vector<OpPlacement> ops;
  for (const auto& [key, count] : counts) ops.push_back({std::get<0>(key), std::get<1>(key), count, std::get<2>(key)});
  return ops;
}

}  // namespace

std::vector<DeviceSupport> support_by_manifests(const plugins::Registry& registry, const TypeNames& types,
                                                const std::string& why_no_model) {
  std::vector<DeviceSupport> all;
  for (const plugins::FoundPlugin& found : registry.plugins()) {
    DeviceSupport support{.device = found.name, .plugin = found.name};
    support.reason = found.problem;
    if (found.name == kNoDriver && found.problem.empty()) {
      try {
        for (DeviceSupport& each : of_cpu(registry, types, why_no_model)) all.push_back(std::move(each));
        continue;
      } catch (const Error& error) {
        support.reason = error.what();
      }
    }
    set_types(support, types, nullptr);
    if (!support.reason.empty() || !why_no_model.empty()) support.runs = false;
    if (support.reason.empty()) support.reason = why_no_model;
    if (support.reason.empty()) support.reason = "not asked: that would open its driver (use --device)";
    all.push_back(std::move(support));
  }
  return all;
}

DeviceSupport support_by_planning(const plugins::Registry& registry, const DeviceOptions& options,
                                  const TypeNames& types, const models::ModelFile& file) {
  const Devices devices = open_devices(registry, options).prefill;
  DeviceSupport support{.device = devices.first().name(), .plugin = {}};
  support.plugin = support.device.substr(0, support.device.find(':'));
  set_types(support, types, &devices.first());
  models::LoadOptions load;
  load.context = options.context.value_or(0);
  load.kv_type = options.kv();
  load.executor.policy = device::FallbackPolicy::kAllow;
  support.memory = file.estimate(load, devices.first());
  try {
    const auto model = models::load(file, devices.chosen, devices.reference, load);
    support.ops = placements(model->executor());
    support.runs = true;
  } catch (const Error& error) {
    support.runs = false;
    support.reason = error.what();
  }
  return support;
}

}  // namespace backplane::tools
