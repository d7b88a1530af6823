// The `onednn` plugin: the tables, and its one device. Its memory is the host's, so that the buffer functions are the
// SDK's.
#include <memory>
#include <string>

#include "backends/onednn/device.h"
#include "backends/onednn/dispatch.h"
#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::onednn {
namespace {

std::string description(const Kernels& kernels) { return "Host processor, fast (" + kernels.name + ")"; }

const Kernels& any_kernels() {
  const Kernels* best = best_kernels();
  if (best == nullptr) throw plugin::Failure(BP_UNAVAILABLE, "no kernels for this processor were built");
  return *best;
}

bp_status count(bp_context context, std::uint32_t* devices) {
  return plugin::guard(context, [&] {
    any_kernels();
    *devices = 1;
  });
}

void check_index(std::uint32_t index) {
  if (index != 0) throw plugin::Failure(BP_INVALID, "there is no device " + std::to_string(index) + ", only 0");
}

bp_status describe(bp_context context, std::uint32_t index, bp_device_info* info) {
  return plugin::guard(context, [&] {
    check_index(index);
    bp_device_info own{};
    plugin::copy_text(own.name, "0");
    plugin::copy_text(own.description, description(any_kernels()));
    own.memory_total = plugin::machine_memory().total;
    plugin::fill_struct(info, own);
  });
}

// How float weights are multiplied: `auto` leaves to oneDNN what it does faster.
enum class Floats { kAuto, kOwn, kLibrary };

Floats floats_of(std::string_view value) {
  if (value == "auto") return Floats::kAuto;
  if (value == "own") return Floats::kOwn;
  if (value != "onednn") {
    throw plugin::Failure(BP_INVALID, "floats '" + std::string(value) + "': auto, own or onednn");
  }
  if (*library_name() == '\0') throw plugin::Failure(BP_INVALID, "floats 'onednn': this plugin was built without it");
  return Floats::kLibrary;
}

void set_option(Device& device, Floats& floats, std::string_view key, std::string_view value) {
  if (key == "floats") {
    floats = floats_of(value);
    return;
  }
  if (key != "kernels") plugin::unknown_option(key);
  device.kernels = kernels_by_name(std::string(value));
  if (device.kernels == nullptr) {
    throw plugin::Failure(BP_INVALID, "no kernels '" + std::string(value) + "' here: there are " + kernel_names());
  }
}

bp_status open(bp_context context, std::uint32_t index, const bp_open_params* params, bp_device* device) {
  return plugin::guard(context, [&] {
    check_index(index);
    auto made = std::make_unique<Device>();
    made->kernels = &any_kernels();
    Floats floats = Floats::kAuto;
    if (params != nullptr) {
      const bp_open_params given = plugin::read_struct(params);
      if ((given.flags & ~std::uint64_t{BP_OPEN_DETERMINISTIC}) != 0) plugin::refuse("unknown flags of open");
      plugin::for_each_option(given.options, [&](auto key, auto value) { set_option(*made, floats, key, value); });
    }
    if (floats != Floats::kOwn) made->library = std::make_unique<FloatLibrary>(*made->kernels);
    made->always_library = floats == Floats::kLibrary;
    *device = reinterpret_cast<bp_device>(made.release());
  });
}

void close(bp_device device) { delete reinterpret_cast<Device*>(device); }

bp_status caps(bp_device device, bp_context context, bp_caps* caps) {
  return plugin::guard(context, [&] {
    bp_caps own{};
    plugin::copy_text(own.name, "0");
    plugin::copy_text(own.description, description(*device_of(device).kernels));
    own.flags = BP_CAP_HOST_VISIBLE | BP_CAP_UNIFIED | BP_CAP_DETERMINISTIC | BP_CAP_BATCH_INVARIANT;
    own.activation_type = BP_TYPE_F32;
    own.alignment = plugin::kHostAlignment;
    own.activation_types = plugin::type_set({BP_TYPE_F32});
    own.weight_types = plugin::type_set({BP_TYPE_F32, BP_TYPE_F16, BP_TYPE_BF16});
    own.kv_types = plugin::type_set({BP_TYPE_F32, BP_TYPE_F16, BP_TYPE_BF16, BP_TYPE_Q8_0});
    constexpr std::uint32_t kPages[] = {16, 32, 64, 128, 256, 8};
    for (std::size_t i = 0; i < std::size(kPages); ++i) own.page_sizes[i] = kPages[i];
    const plugin::MachineMemory memory = plugin::machine_memory();
    own.memory_total = memory.total;
    own.memory_free = memory.available;
    plugin::fill_struct(caps, own);
  });
}

bp_status supports(bp_device device, bp_context context, const bp_op_query* query, bp_support* support) {
  return plugin::guard(context, [&] {
    plugin::require(query != nullptr && support != nullptr, "a query needs a question and room for the answer");
    bp_support own{};
    answer_query(device_of(device), plugin::read_struct(query), own);
    plugin::fill_struct(support, own);
  });
}

bp_status run(bp_device device, bp_stream stream, bp_context context, const bp_op* op) {
  return plugin::guard(context, [&] {
    plugin::require(op != nullptr, "there is no op");
    plugin::require(stream == nullptr, "this device has no streams");
    run_op(device_of(device), plugin::read_struct(op));
  });
}

}  // namespace
}  // namespace backplane::onednn

extern "C" BP_EXPORT bp_status backplane_plugin_v1(const bp_host* host, bp_context context, bp_tables* tables) {
  namespace plugin = backplane::plugin;
  namespace onednn = backplane::onednn;
  plugin::host = host;
  return plugin::guard(context, [&] {
    bp_driver_table driver{};
    driver.abi_minor = BP_ABI_MINOR;
    driver.name = "onednn";
    driver.version = "1";
    driver.count = onednn::count;
    driver.open = onednn::open;
    driver.close = onednn::close;
    driver.describe = onednn::describe;
    plugin::fill_table(tables, &bp_tables::driver, driver);
    bp_device_table device{};
    device.caps = onednn::caps;
    device.supports = onednn::supports;
    device.run = onednn::run;
    plugin::fill_table(tables, &bp_tables::device, device);
    plugin::fill_table(tables, &bp_tables::buffer, plugin::host_memory_table());
    bp_weights_table weights{};
    onednn::fill_weights(weights);
    plugin::fill_table(tables, &bp_tables::weights, weights);
    bp_kv_table kv{};
    onednn::fill_kv(kv);
    plugin::fill_table(tables, &bp_tables::kv, kv);
  });
}
