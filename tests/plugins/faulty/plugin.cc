// The entry point and the driver table.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "faulty.h"

namespace faulty {

namespace {

// The tables that the cpu plugin fills, as a core would own them.
struct Loaded {
  bp_driver_table driver{};
  bp_device_table device{};
  bp_buffer_table buffer{};
};

Loaded load_cpu() {
  Loaded loaded;
  void* library = dlopen(CPU_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  if (!library) throw sdk::Failure(BP_UNAVAILABLE, dlerror());
  const auto query = reinterpret_cast<bp_plugin_query_fn>(dlsym(library, BP_ENTRY_POINT_NAME));
  if (!query) throw sdk::Failure(BP_UNAVAILABLE, "the cpu plugin has no entry point");
  loaded.driver.size = sizeof(loaded.driver);
  loaded.device.size = sizeof(loaded.device);
  loaded.buffer.size = sizeof(loaded.buffer);
  bp_tables tables{};
  tables.size = sizeof(tables);
  tables.driver = &loaded.driver;
  tables.device = &loaded.device;
  tables.buffer = &loaded.buffer;
  call_cpu([&](bp_context context) { return query(sdk::host, context, &tables); });
  return loaded;
}

bp_status count(bp_context, std::uint32_t* devices) {
  *devices = 2;
  return BP_OK;
}

void read_options(Device& device, const char* options) {
  sdk::for_each_option(options, [&](std::string_view key, std::string_view value) {
    if (key == "q8") {
      device.rounds_to_q8 = value == "1";
    } else if (key == "crash") {
      device.crashes = value == "1";
    } else if (key == "fault") {
      device.fault = value;
      const bool known = std::any_of(std::begin(kFaults), std::end(kFaults), [&](auto name) { return value == name; });
      sdk::require(known, "there is no such fault");
    } else {
      sdk::unknown_option(key);
    }
  });
}

bp_status open(bp_context context, std::uint32_t index, const bp_open_params* params, bp_device* device) {
  return sdk::guard(context, [&] {
    sdk::require(index < 2, "there are two devices, 0 and 1");
    auto made = std::make_unique<Device>();
    made->index = index;
    bp_open_params given = sdk::read_struct(params);
    read_options(*made, given.options ? given.options : std::getenv("BACKPLANE_FAULTY"));
    given.options = nullptr;
    if (made->has("any_flag")) given.flags &= BP_OPEN_DETERMINISTIC;
    call_cpu([&](bp_context inner) { return cpu().driver->open(inner, 0, &given, &made->cpu); });
    *device = reinterpret_cast<bp_device>(made.release());
  });
}

void close(bp_device device) {
  cpu().driver->close(self(device).cpu);
  delete &self(device);
}

template <class Table>
void fill(bp_tables* tables, Table* bp_tables::*member, void (*fill)(Table&)) {
  Table table{};
  fill(table);
  sdk::fill_table(tables, member, table);
}

}  // namespace

// What the cpu plugin says when it fails becomes the text of the failure.
void call_cpu(const std::function<bp_status(bp_context)>& function) {
  const bp_status status = function(nullptr);
  if (status != BP_OK) throw sdk::Failure(status, "the cpu plugin failed with status " + std::to_string(status));
}

const bp_tables& cpu() {
  static Loaded loaded = load_cpu();
  static const bp_tables tables = [] {
    bp_tables t{};
    t.size = sizeof(t);
    t.driver = &loaded.driver;
    t.device = &loaded.device;
    t.buffer = &loaded.buffer;
    return t;
  }();
  return tables;
}

std::byte* address_of(const bp_tensor& tensor) { return sdk::host_buffer(tensor.buffer).data + tensor.offset; }

void fill_driver(bp_driver_table& table) {
  table.abi_minor = BP_ABI_MINOR;
  table.name = "faulty";
  table.version = "1";
  table.count = count;
  table.open = open;
  table.close = close;
}

}  // namespace faulty

extern "C" BP_EXPORT bp_status backplane_plugin_v1(const bp_host* host, bp_context context, bp_tables* tables) {
  faulty::sdk::host = host;
  return faulty::sdk::guard(context, [&] {
    faulty::fill(tables, &bp_tables::driver, faulty::fill_driver);
    faulty::fill(tables, &bp_tables::device, faulty::fill_device);
    faulty::fill(tables, &bp_tables::buffer, faulty::fill_buffer);
    faulty::fill(tables, &bp_tables::stream, faulty::fill_stream);
    faulty::fill(tables, &bp_tables::graph, faulty::fill_graph);
    faulty::fill(tables, &bp_tables::comm, faulty::fill_comm);
  });
}
