// `opaque`: a test plugin that is nothing like a CPU. Memory the host can't reach, a stream on a thread of its own
// whose failures surface late, its own layouts of weights and KV, pages of 12 tokens, a workspace, captured work, fused
// ops for some shapes only, and, through its options, refusals, failures and lies at will (options.h).
#include <cstdlib>

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

// Tests take tables away from a plugin that is loaded. Programs can't: for them BACKPLANE_OPAQUE_LACKS names tables and
// groups of functions, joined by '+', that are not there from the start.
class Missing {
 public:
  bool has(const char* name) const { return names_.count(name) != 0; }
  template <class... Functions>
  void drop(const char* name, Functions&... functions) const {
    if (has(name)) ((functions = nullptr), ...);
  }

 private:
  std::set<std::string> names_ = parse_list(std::getenv("BACKPLANE_OPAQUE_LACKS"));
};

template <class Table, class Fill>
void fill_group(bp_tables* tables, Table* bp_tables::*member, bool missing, Fill&& fill_table) {
  Table table{};
  if (!missing) fill_table(table);
  sdk::fill_table(tables, member, table);
}

void fill_driver(bp_driver_table& driver) {
  driver.abi_minor = BP_ABI_MINOR;
  driver.name = "opaque";
  driver.version = "1";
  driver.count = count;
  driver.open = open;
  driver.close = close;
  driver.describe = describe;
}

void fill(bp_tables* tables) {
  const Missing missing;
  fill_group(tables, &bp_tables::driver, false, fill_driver);
  fill_group(tables, &bp_tables::device, false, [&](bp_device_table& device) {
    device.caps = caps;
    device.supports = supports;
    device.run = run;
    fill_built(device);
    missing.drop("prepare", device.prepare, device.unprepare);
    missing.drop("compile", device.compile, device.run_compiled, device.uncompile);
  });
  fill_group(tables, &bp_tables::buffer, false, [&](bp_buffer_table& buffer) {
    fill_buffers(buffer);
    missing.drop("map", buffer.map);
    missing.drop("import_host", buffer.import_host);
    missing.drop("copy", buffer.copy);
  });
  fill_group(tables, &bp_tables::stream, missing.has("stream"), [&](bp_stream_table& stream) {
    fill_stream(stream);
    missing.drop("events", stream.event_create, stream.event_destroy, stream.event_record, stream.event_wait,
                 stream.event_sync);
  });
  fill_group(tables, &bp_tables::weights, missing.has("weights"), fill_weights);
  fill_group(tables, &bp_tables::kv, missing.has("kv"), [&](bp_kv_table& kv) {
    fill_kv(kv);
    missing.drop("native_pages", kv.native_layout, kv.native_page_bytes, kv.export_native, kv.import_native);
  });
  fill_group(tables, &bp_tables::graph, missing.has("graph"), fill_graph);
}

}  // namespace
}  // namespace opaque

extern "C" BP_EXPORT bp_status backplane_plugin_v1(const bp_host* host, bp_context context, bp_tables* tables) {
  backplane::plugin::host = host;
  return backplane::plugin::guard(context, [&] { opaque::fill(tables); });
}
