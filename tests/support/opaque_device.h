// Opens devices with some of their plugin's tables taken away or changed, and the `opaque` test plugin.
#pragma once

#include <deque>
#include <memory>
#include <set>
#include <string>

#include "core/device/device.h"
#include "plugins/host/registry.h"
#include "tests/plugins/opaque/report.h"
#include "tests/support/devices.h"

namespace backplane::test {

// A copy of a plugin's tables that a test may change.
struct TableSet {
  explicit TableSet(const bp_tables& from)
      : driver(*from.driver),
        device(*from.device),
        buffer(*from.buffer),
        stream(*from.stream),
        weights(*from.weights),
        kv(*from.kv),
        graph(*from.graph),
        comm(*from.comm) {}

  // A table, or a group of functions inside one: as if the plugin had never implemented it.
  void remove(const std::string& group) {
    if (group == "weights") clear(weights);
    if (group == "kv") clear(kv);
    if (group == "stream") clear(stream);
    if (group == "graph") clear(graph);
    if (group == "prepare") device.prepare = nullptr, device.unprepare = nullptr;
    if (group == "compile") device.compile = nullptr, device.run_compiled = nullptr, device.uncompile = nullptr;
    if (group == "map") buffer.map = nullptr;
    if (group == "import_host") buffer.import_host = nullptr;
    if (group == "copy") buffer.copy = nullptr;
    if (group == "native_pages") {
      kv.native_layout = nullptr;
      kv.native_page_bytes = nullptr;
      kv.export_native = nullptr;
      kv.import_native = nullptr;
    }
    if (group == "events") {
      stream.event_create = nullptr;
      stream.event_destroy = nullptr;
      stream.event_record = nullptr;
      stream.event_wait = nullptr;
      stream.event_sync = nullptr;
    }
  }

  bp_driver_table driver;
  bp_device_table device;
  bp_buffer_table buffer;
  bp_stream_table stream;
  bp_weights_table weights;
  bp_kv_table kv;
  bp_graph_table graph;
  bp_comm_table comm;
  bp_tables tables{sizeof(bp_tables), &driver, &device, &buffer, &stream, &weights, &kv, &graph, &comm};

 private:
  template <class Table>
  static void clear(Table& table) {
    table = {};
    table.size = sizeof(table);
  }
};

// Lives as long as the program, as a plugin's tables do.
inline TableSet& changed_tables(const bp_tables& from) {
  static std::deque<TableSet> all;
  return all.emplace_back(from);
}

inline plugins::DeviceRef find_opaque(const std::string& name) {
  static const plugins::Registry registry({{}, "", {BACKPLANE_OPAQUE_DIR}});
  return registry.find_device(name);
}

inline std::shared_ptr<device::Device> open_opaque(const std::string& name = "opaque:f32",
                                                   const std::string& options = {},
                                                   const std::set<std::string>& without_tables = {}) {
  const plugins::DeviceRef ref = find_opaque(name);
  const bp_tables* tables = &ref.plugin->tables();
  if (!without_tables.empty()) {
    TableSet& changed = changed_tables(*tables);
    for (const std::string& group : without_tables) changed.remove(group);
    tables = &changed.tables;
  }
  return device::Device::open({tables, "opaque"}, ref.index, false, options);
}

}  // namespace backplane::test
