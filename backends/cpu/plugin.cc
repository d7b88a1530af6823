// The `cpu` plugin: the tables, and the two devices cpu:f32 and cpu:f64. Its memory is the host's, so that the buffer
// functions are the SDK's.
#include <memory>

#include "backends/cpu/dispatch.h"
#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::cpu {
namespace {

// Elements of every type lie at multiples of their size; more isn't needed, and weights of a mapped file, which GGUF
// aligns to 32 bytes or less, can be used where they are.
constexpr std::uint32_t kAlignment = 8;

struct Kind {
  const char* name;
  bp_type real;
  const char* description;
};

constexpr Kind kKinds[] = {
    {"f32", BP_TYPE_F32, "Host processor, readable reference in single precision"},
    {"f64", BP_TYPE_F64, "Host processor, readable reference in double precision"},
};
constexpr std::uint32_t kKindCount = 2;

// A device has no state but what it computes in.
const Kind& kind_of(bp_device device) { return *reinterpret_cast<const Kind*>(device); }

bp_status count(bp_context, std::uint32_t* devices) {
  *devices = kKindCount;
  return BP_OK;
}

const Kind& kind_at(std::uint32_t index) {
  if (index >= kKindCount) {
    throw plugin::Failure(BP_INVALID, "there is no device " + std::to_string(index) + ", only 0 (f32) and 1 (f64)");
  }
  return kKinds[index];
}

bp_status describe(bp_context context, std::uint32_t index, bp_device_info* info) {
  return plugin::guard(context, [&] {
    const Kind& kind = kind_at(index);
    bp_device_info own{};
    plugin::copy_text(own.name, kind.name);
    plugin::copy_text(own.description, kind.description);
    own.memory_total = plugin::machine_memory().total;
    plugin::fill_struct(info, own);
  });
}

bp_status open(bp_context context, std::uint32_t index, const bp_open_params* params, bp_device* device) {
  return plugin::guard(context, [&] {
    const Kind& kind = kind_at(index);
    if (params != nullptr) {
      const bp_open_params given = plugin::read_struct(params);
      if ((given.flags & ~std::uint64_t{BP_OPEN_DETERMINISTIC}) != 0) plugin::refuse("unknown flags of open");
      plugin::for_each_option(given.options, [](auto key, auto) { plugin::unknown_option(key); });
    }
    *device = reinterpret_cast<bp_device>(std::make_unique<Kind>(kind).release());
  });
}

void close(bp_device device) { delete reinterpret_cast<Kind*>(device); }

bp_status caps(bp_device device, bp_context context, bp_caps* caps) {
  return plugin::guard(context, [&] {
    const Kind& kind = kind_of(device);
    bp_caps own{};
    plugin::copy_text(own.name, kind.name);
    plugin::copy_text(own.description, kind.description);
    own.flags = BP_CAP_HOST_VISIBLE | BP_CAP_UNIFIED | BP_CAP_DETERMINISTIC | BP_CAP_BATCH_INVARIANT;
    own.activation_type = kind.real;
    own.alignment = kAlignment;
    own.activation_types = plugin::type_set({kind.real});
    own.weight_types =
        plugin::type_set({BP_TYPE_F64, BP_TYPE_F32, BP_TYPE_F16, BP_TYPE_BF16, BP_TYPE_Q4_0, BP_TYPE_Q4_1, BP_TYPE_Q5_0,
                          BP_TYPE_Q5_1, BP_TYPE_Q8_0, BP_TYPE_Q2_K, BP_TYPE_Q3_K, BP_TYPE_Q4_K, BP_TYPE_Q5_K,
                          BP_TYPE_Q6_K, BP_TYPE_IQ4_NL, BP_TYPE_IQ4_XS, BP_TYPE_MXFP4});
    own.kv_types =
        plugin::type_set({BP_TYPE_F64, BP_TYPE_F32, BP_TYPE_F16, BP_TYPE_BF16, BP_TYPE_F8_E4M3, BP_TYPE_Q8_0});
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
    answer_query(kind_of(device).real, plugin::read_struct(query), own);
    plugin::fill_struct(support, own);
  });
}

bp_status run(bp_device device, bp_stream stream, bp_context context, const bp_op* op) {
  return plugin::guard(context, [&] {
    plugin::require(op != nullptr, "there is no op");
    plugin::require(stream == nullptr, "this device has no streams");
    run_op(kind_of(device).real, plugin::read_struct(op));
  });
}

}  // namespace
}  // namespace backplane::cpu

extern "C" BP_EXPORT bp_status backplane_plugin_v1(const bp_host* host, bp_context context, bp_tables* tables) {
  namespace plugin = backplane::plugin;
  namespace cpu = backplane::cpu;
  plugin::host = host;
  return plugin::guard(context, [&] {
    bp_driver_table driver{};
    driver.abi_minor = BP_ABI_MINOR;
    driver.name = "cpu";
    driver.version = "1";
    driver.count = cpu::count;
    driver.open = cpu::open;
    driver.close = cpu::close;
    driver.describe = cpu::describe;
    plugin::fill_table(tables, &bp_tables::driver, driver);
    bp_device_table device{};
    device.caps = cpu::caps;
    device.supports = cpu::supports;
    device.run = cpu::run;
    plugin::fill_table(tables, &bp_tables::device, device);
    plugin::fill_table(tables, &bp_tables::buffer, plugin::host_memory_table());
  });
}
