// Captured work. What it reads, the arrays of the step above all, it reads from the device's memory when it is
// launched.
#include "device.h"

namespace opaque {
namespace {

namespace sdk = backplane::plugin;

using Graph = std::shared_ptr<const std::vector<Device::Work>>;

bp_status capture_begin(bp_device device, bp_stream stream, bp_context context) {
  return sdk::guard(context, [&] {
    if (self(device).options.no_graph) sdk::refuse("records nothing");
    const auto fault = self(device).gate(true);
    self(device).begin_capture(stream);
    if (fault) self(device).enqueue(stream, fault, {});
  });
}

bp_status capture_end(bp_device device, bp_stream stream, bp_context context, bp_graph* graph) {
  return sdk::guard(context, [&] {
    Device::Fault fault;
    try {
      fault = self(device).gate(true);
    } catch (...) {
      self(device).forget(stream);
      throw;
    }
    if (fault) self(device).enqueue(stream, fault, {});
    auto work = std::make_shared<const std::vector<Device::Work>>(self(device).end_capture(stream).work);
    if (self(device).options.report) self(device).options.report->recorded += work->size();
    *graph = self(device).give<bp_graph>(std::make_unique<Graph>(std::move(work)));
  });
}

bp_status launch(bp_device handle, bp_stream stream, bp_context context, bp_graph graph) {
  return sdk::guard(context, [&] {
    Device& device = self(handle);
    device.submit(stream, [&device, work = *reinterpret_cast<Graph*>(graph)] {
      for (const Device::Work& item : *work) device.perform(item);
      if (device.options.report) ++device.options.report->launches;
    });
  });
}

void destroy(bp_device device, bp_graph graph) { self(device).take(reinterpret_cast<Graph*>(graph)); }

}  // namespace

void fill_graph(bp_graph_table& table) {
  table.capture_begin = capture_begin;
  table.capture_end = capture_end;
  table.launch = launch;
  table.destroy = destroy;
}

}  // namespace opaque
