// The `cuda` plugin: the tables, and one device for each GPU.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "backends/cuda/device.h"
#include "backends/cuda/dispatch.h"

namespace backplane::cuda {
namespace {

// Each GPU is listed once for each type of activations: "0" and "1" in F32 first, then "0-bf16" and "1-bf16".
struct Listed {
  std::uint32_t gpu;
  bp_type activation;
  std::string name() const { return std::to_string(gpu) + (activation == BP_TYPE_BF16 ? "-bf16" : ""); }
};

bp_status count(bp_context context, std::uint32_t* devices) {
  return plugin::guard(context, [&] { *devices = 2 * static_cast<std::uint32_t>(device_count()); });
}

Listed listed(std::uint32_t index) {
  const auto gpus = static_cast<std::uint32_t>(device_count());
  if (index < gpus) return {index, BP_TYPE_F32};
  if (index < 2 * gpus) return {index - gpus, BP_TYPE_BF16};
  throw plugin::Failure(BP_INVALID,
                        "there is no device " + std::to_string(index) + ", only " + std::to_string(2 * gpus));
}

constexpr int kLeastCapability = 8;  // major: mma.sync in bf16 and tf32, asynchronous copies

struct Properties {
  std::string description;
  std::uint64_t memory;
  int capability;  // major
  cudaUUID_t uuid;
};

// "NVIDIA H200, compute capability 9.0".
Properties properties_of(std::uint32_t index) {
  cudaDeviceProp found{};
  check(cudaGetDeviceProperties(&found, static_cast<int>(index)), "cudaGetDeviceProperties");
  return {std::string(found.name) + ", compute capability " + std::to_string(found.major) + "." +
              std::to_string(found.minor),
          found.totalGlobalMem, found.major, found.uuid};
}

bp_status describe(bp_context context, std::uint32_t index, bp_device_info* info) {
  return plugin::guard(context, [&] {
    const Listed device = listed(index);
    bp_device_info own{};
    plugin::copy_text(own.name, device.name());
    plugin::fill_struct(info, own);  // of one that can't be used, too
    const Properties properties = properties_of(device.gpu);
    if (properties.capability < kLeastCapability) {
      throw plugin::Failure(BP_UNAVAILABLE,
                            properties.description + ": too old, " + std::to_string(kLeastCapability) + ".0 is needed");
    }
    plugin::copy_text(own.description, properties.description);
    own.memory_total = properties.memory;
    plugin::fill_struct(info, own);
  });
}

bp_status open(bp_context context, std::uint32_t index, const bp_open_params* params, bp_device* device) {
  return plugin::guard(context, [&] {
    const Listed found = listed(index);
    const bp_open_params given = params != nullptr ? plugin::read_struct(params) : bp_open_params{};
    if ((given.flags & ~std::uint64_t{BP_OPEN_DETERMINISTIC}) != 0) plugin::refuse("unknown flags of open");
    plugin::for_each_option(given.options, [](auto key, auto) { plugin::unknown_option(key); });
    const bool deterministic = (given.flags & BP_OPEN_DETERMINISTIC) != 0;
    *device =
        reinterpret_cast<bp_device>(std::make_unique<Device>(found.gpu, deterministic, found.activation).release());
  });
}

void close(bp_device handle) {
  const std::unique_ptr<Device> device(&device_of(handle));
  device->use_to_destroy();  // streams are gone, each waited for: others of this GPU may be recording
}

bp_status caps(bp_device handle, bp_context context, bp_caps* caps) {
  return plugin::guard(context, [&] {
    Device& device = device_of(handle);
    device.guarded([&] {
      const Properties properties = properties_of(device.number);
      bp_caps own{};
      plugin::copy_text(own.name, Listed{device.number, device.activation}.name());
      plugin::copy_text(own.description, properties.description);
      own.flags = BP_CAP_DETERMINISTIC;
      if (device.deterministic) own.flags |= BP_CAP_BATCH_INVARIANT;
      own.activation_type = device.activation;
      own.alignment = kAlignment;
      own.activation_types = plugin::type_set({device.activation});
      own.weight_types = plugin::type_set({BP_TYPE_F32, BP_TYPE_F16, BP_TYPE_BF16});  // others are imported
      own.kv_types = plugin::type_set({BP_TYPE_F32, BP_TYPE_F16, BP_TYPE_BF16, BP_TYPE_F8_E4M3, BP_TYPE_Q8_0});
      own.max_head_dim = kMostHeadDim;
      std::size_t available = 0, total = 0;
      check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
      own.memory_total = total;
      static_assert(sizeof(own.memory_id) == sizeof(properties.uuid.bytes));
      std::memcpy(own.memory_id, properties.uuid.bytes, sizeof(own.memory_id));
      // Code is loaded, and cuBLASLt, when something first needs it; the driver hands memory out in pieces of 2 MiB, of
      // which a large model's hundreds of buffers each lose one half; and steps need workspaces and their recordings.
      // A core that plans with all there is must not take that room away.
      const std::size_t kept = std::min<std::size_t>(total / 32, std::size_t{1} << 30);
      own.memory_free = available - std::min(available, kept);
      plugin::fill_struct(caps, own);
    });
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

bp_status run(bp_device, bp_stream stream, bp_context context, const bp_op* op) {
  return on_stream(stream, context, [&](Stream& on) {
    plugin::require(op != nullptr, "there is no op");
    run_op(on, context, plugin::read_struct(op));
  });
}

void fill(bp_tables* tables) {
  bp_driver_table driver{};
  driver.abi_minor = BP_ABI_MINOR;
  driver.name = BACKPLANE_CUDA_NAME;
  driver.version = "1";
  driver.count = count;
  driver.open = open;
  driver.close = close;
  driver.describe = describe;
  plugin::fill_table(tables, &bp_tables::driver, driver);
  bp_device_table device{};
  device.caps = caps;
  device.supports = supports;
  device.run = run;
  plugin::fill_table(tables, &bp_tables::device, device);
  bp_buffer_table buffer{};
  fill_buffers(buffer);
  plugin::fill_table(tables, &bp_tables::buffer, buffer);
  bp_stream_table stream{};
  fill_streams(stream);
  plugin::fill_table(tables, &bp_tables::stream, stream);
  bp_weights_table weights{};
  fill_weights(weights);
  plugin::fill_table(tables, &bp_tables::weights, weights);
  bp_kv_table kv{};
  fill_kv(kv);
  plugin::fill_table(tables, &bp_tables::kv, kv);
  bp_graph_table graph{};
  fill_graphs(graph);
  plugin::fill_table(tables, &bp_tables::graph, graph);
}

}  // namespace
}  // namespace backplane::cuda

extern "C" BP_EXPORT bp_status backplane_plugin_v1(const bp_host* host, bp_context context, bp_tables* tables) {
  backplane::plugin::host = host;
  return backplane::plugin::guard(context, [&] { backplane::cuda::fill(tables); });
}
