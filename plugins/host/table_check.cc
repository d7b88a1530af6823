#include "plugins/host/table_check.h"

#include <algorithm>
#include <string_view>
#include <tuple>

#include "core/base/log.h"

namespace backplane::plugins {
namespace {

// Clears the functions when some but not all are there.
template <class... Functions>
void all_or_none(const std::string& plugin, std::string_view group, Functions&... functions) {
  const bool some = (... || (functions != nullptr));
  const bool all = (... && (functions != nullptr));
  if (!some || all) return;
  log(LogLevel::kWarning, "plugins", "{}: {} is left unused: some of its functions are missing", plugin, group);
  ((functions = nullptr), ...);
}

// Parts of a group that can't be used without the rest.
template <class Table>
void clear(Table& table) {
  const std::uint64_t size = table.size;
  table = {};
  table.size = size;
}

}  // namespace

std::string missing_functions(const bp_tables& tables) {
  std::string missing;
  const auto need = [&missing](bool present, const char* name) {
    if (!present) missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  need(tables.driver->count, "driver.count");
  need(tables.driver->open, "driver.open");
  need(tables.driver->close, "driver.close");
  need(tables.device->caps, "device.caps");
  need(tables.device->supports, "device.supports");
  need(tables.device->run, "device.run");
  need(tables.buffer->alloc, "buffer.alloc");
  need(tables.buffer->free, "buffer.free");
  need(tables.buffer->upload, "buffer.upload");
  need(tables.buffer->download, "buffer.download");
  return missing;
}

void drop_incomplete_groups(const bp_tables& tables, const std::string& plugin) {
  bp_device_table& device = *tables.device;
  all_or_none(plugin, "device.prepare", device.prepare, device.unprepare);
  all_or_none(plugin, "device.compile", device.compile, device.run_compiled, device.uncompile);

  bp_stream_table& stream = *tables.stream;
  all_or_none(plugin, "stream", stream.create, stream.destroy, stream.sync);
  all_or_none(plugin, "stream.event", stream.event_create, stream.event_destroy, stream.event_record, stream.event_wait,
              stream.event_sync);
  if (!stream.create) clear(stream);

  bp_weights_table& weights = *tables.weights;
  all_or_none(plugin, "weights", weights.packed_bytes, weights.create, weights.import_rows, weights.finish,
              weights.export_rows, weights.destroy);

  bp_kv_table& kv = *tables.kv;
  all_or_none(plugin, "kv", kv.bytes, kv.create, kv.destroy, kv.export_pages, kv.import_pages, kv.copy_pages);
  all_or_none(plugin, "kv.native", kv.native_layout, kv.native_page_bytes, kv.export_native, kv.import_native);
  if (!kv.create) clear(kv);

  bp_graph_table& graph = *tables.graph;
  all_or_none(plugin, "graph", graph.capture_begin, graph.capture_end, graph.launch, graph.destroy);

  bp_comm_table& comm = *tables.comm;
  all_or_none(plugin, "comm", comm.id_bytes, comm.unique_id, comm.create, comm.destroy, comm.all_reduce,
              comm.all_gather, comm.reduce_scatter, comm.send, comm.receive);
}

}  // namespace backplane::plugins
