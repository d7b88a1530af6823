// `opaque`: a test plugin that is nothing like a CPU. Memory the host can't reach, a stream on a thread of its own
// whose failures surface late, its own layouts of weights and KV, pages of 12 tokens, a workspace, captured work, fused
// ops for some shapes only, and, through its options, refusals, failures and lies at will (options.h).
#include "device.h"

namespace opaque {
namespace {

namespace sdk = backplane::plugin;

bp_status count(bp_context, std::uint32_t* devices) {
  *devices = 2;
  return BP_OK;
}

bp_status describe(bp_context context, std::uint32_t index, bp_device_info* info) {
  return sdk::guard(context, [&] {
    sdk::require(index < 2, "there are two devices, 0 and 1");
    bp_device_info own{};
    sdk::copy_text(own.name, index == 1 ? "f16" : "f32");
    sdk::copy_text(own.description, "Test device with opaque memory");
    sdk::fill_struct(info, own);
  });
}

bp_status open(bp_context context, std::uint32_t index, const bp_open_params* params, bp_device* device) {
  return sdk::guard(context,
                    [&] { *device = reinterpret_cast<bp_device>(std::make_unique<Device>(index, params).release()); });
}

void close(bp_device device) { delete &self(device); }

bp_status caps(bp_device handle, bp_context context, bp_caps* caps) {
  return sdk::guard(context, [&] {
    Device& device = self(handle);
    device.gate();
    bp_caps own{};
    sdk::copy_text(own.name, device.name());
    sdk::copy_text(own.description, "Test device with opaque memory");
    own.flags = BP_CAP_DETERMINISTIC | BP_CAP_BATCH_INVARIANT;
    if (device.options.visible && !device.options.no_map) own.flags |= BP_CAP_HOST_VISIBLE | BP_CAP_UNIFIED;
    own.activation_type = device.options.lie == "caps" ? bp_type{BP_TYPE_I32} : device.real;
    own.activation_types = sdk::type_set({BP_TYPE_F32, BP_TYPE_F16});
    own.alignment = device.options.lie == "alignment" ? 192 : device.options.alignment;
    own.weight_types = sdk::type_set({BP_TYPE_F32});
    if (!device.options.no_kv) own.kv_types = sdk::type_set({BP_TYPE_F32, BP_TYPE_F16});
    own.page_sizes[0] = 12;
    sdk::fill_struct(caps, own);
  });
}

bp_status supports(bp_device device, bp_context context, const bp_op_query* query, bp_support* support) {
  return sdk::guard(context, [&] {
    self(device).gate();
    bp_support own{};
    answer_query(self(device), sdk::read_struct(query), own);
    sdk::fill_struct(support, own);
  });
}

bp_status run(bp_device device, bp_stream stream, bp_context context, const bp_op* op) {
  return sdk::guard(context, [&] {
    const bp_op given = sdk::read_struct(op);
    const auto fault = self(device).gate(true);
    if (self(device).options.uncapturable.count(sdk::op_name(given.code))) self(device).require_no_capture(stream);
    self(device).enqueue(stream, fault, op_work(self(device), given));
  });
}

bp_status alloc(bp_device device, bp_context context, std::uint64_t bytes, bp_memory kind, bp_buffer* buffer) {
  return sdk::guard(context, [&] {
    self(device).gate();
    if (kind != BP_MEMORY_DEVICE) sdk::refuse("there is only device memory");
    *buffer = self(device).options.lie == "null_handle"
                  ? nullptr
                  : self(device).memory.alloc(bytes, self(device).options.visible);
  });
}

void free(bp_device device, bp_buffer buffer) {
  self(device).note_end_of_use();
  self(device).memory.free(buffer);
}

bp_status upload(bp_device handle, bp_stream stream, bp_context context, bp_buffer buffer, std::uint64_t offset,
                 const void* data, std::uint64_t bytes) {
  return sdk::guard(context, [&] {
    Device& device = self(handle);
    device.submit(stream, [=, &device] { device.memory.at(buffer)->write(offset, data, bytes); });
  });
}

bp_status download(bp_device handle, bp_stream stream, bp_context context, bp_buffer buffer, std::uint64_t offset,
                   void* data, std::uint64_t bytes) {
  return sdk::guard(context, [&] {
    Device& device = self(handle);
    device.submit(stream, [=, &device] { device.memory.at(buffer)->read(offset, data, bytes); });
  });
}

bp_status copy(bp_device handle, bp_stream stream, bp_context context, bp_buffer to, std::uint64_t to_offset,
               bp_buffer from, std::uint64_t from_offset, std::uint64_t bytes) {
  return sdk::guard(context, [&] {
    Device& device = self(handle);
    if (device.options.no_copy) sdk::refuse("copies nothing");
    device.submit(stream, [=, &device] {
      const auto source = device.memory.at(from);
      sdk::require(bytes <= source->size(), "a copy beyond the end of opaque memory");
      std::vector<std::byte> moved(bytes);
      source->read(from_offset, moved.data(), bytes);
      device.memory.at(to)->write(to_offset, moved.data(), bytes);
    });
  });
}

bp_status map(bp_device device, bp_context context, bp_buffer buffer, void** address) {
  return sdk::guard(context, [&] {
    if (self(device).options.no_map) sdk::refuse("maps nothing");
    self(device).gate();
    *address = self(device).memory.at(buffer)->host();
    if (!*address) sdk::refuse("memory that the host can't touch");
  });
}

bp_status import_host(bp_device device, bp_context context, void* address, std::uint64_t bytes, std::uint32_t,
                      bp_buffer* buffer) {
  return sdk::guard(context, [&] {
    if (!self(device).options.visible || self(device).options.no_import) sdk::refuse("can't touch memory of the host");
    self(device).gate();
    *buffer = self(device).memory.import(static_cast<std::byte*>(address), bytes);
  });
}

void fill(bp_tables* tables) {
  bp_driver_table driver{};
  driver.abi_minor = BP_ABI_MINOR;
  driver.name = "opaque";
  driver.version = "1";
  driver.count = count;
  driver.open = open;
  driver.close = close;
  driver.describe = describe;
  sdk::fill_table(tables, &bp_tables::driver, driver);
  bp_device_table device{};
  device.caps = caps;
  device.supports = supports;
  device.run = run;
  fill_built(device);
  sdk::fill_table(tables, &bp_tables::device, device);
  bp_buffer_table buffer{};
  buffer.alloc = alloc;
  buffer.free = free;
  buffer.upload = upload;
  buffer.download = download;
  buffer.map = map;
  buffer.import_host = import_host;
  buffer.copy = copy;
  sdk::fill_table(tables, &bp_tables::buffer, buffer);
  bp_stream_table stream{};
  fill_stream(stream);
  sdk::fill_table(tables, &bp_tables::stream, stream);
  bp_weights_table weights{};
  fill_weights(weights);
  sdk::fill_table(tables, &bp_tables::weights, weights);
  bp_kv_table kv{};
  fill_kv(kv);
  sdk::fill_table(tables, &bp_tables::kv, kv);
  bp_graph_table graph{};
  fill_graph(graph);
  sdk::fill_table(tables, &bp_tables::graph, graph);
}

}  // namespace
}  // namespace opaque

extern "C" BP_EXPORT bp_status backplane_plugin_v1(const bp_host* host, bp_context context, bp_tables* tables) {
  backplane::plugin::host = host;
  return backplane::plugin::guard(context, [&] { opaque::fill(tables); });
}
