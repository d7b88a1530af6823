// Streams, the events by which one waits for another, and captured work.
#include <memory>

#include "backends/cuda/device.h"
#include "backends/cuda/device_compat.cuh"

namespace backplane::cuda {
namespace {

bp_status create(bp_device device, bp_context context, bp_stream* stream) {
  return plugin::guard(context, [&] {
    device_of(device).guarded(
        [&] { *stream = reinterpret_cast<bp_stream>(std::make_unique<Stream>(device_of(device)).release()); });
  });
}

void destroy(bp_device, bp_stream stream) { delete &stream_of(stream); }

bp_status sync(bp_device, bp_stream stream, bp_context context) {
  return on_stream(stream, context, [](Stream& on) { on.sync(); });
}

bp_status event_create(bp_device device, bp_context context, bp_event* event) {
  return plugin::guard(context, [&] {
    device_of(device).guarded([&] {
      auto made = std::make_unique<Event>();
      check(cudaEventCreateWithFlags(&made->handle, cudaEventDisableTiming), "cudaEventCreateWithFlags");
      *event = reinterpret_cast<bp_event>(made.release());
    });
  });
}

void event_destroy(bp_device device, bp_event given) {
  const std::unique_ptr<Event> event(&event_of(given));
  device_of(device).use_to_destroy();
  cudaEventDestroy(event->handle);
  cudaGetLastError();
}

bp_status event_record(bp_device, bp_stream stream, bp_context context, bp_event given) {
  return on_stream(stream, context, [&](Stream& on) {
    Event& event = event_of(given);
    check(cudaEventRecord(event.handle, on.handle), "cudaEventRecord");
    event.fault_word = on.fault_word;
  });
}

bp_status event_wait(bp_device, bp_stream stream, bp_context context, bp_event event) {
  return on_stream(stream, context, [&](Stream& on) {
    if (CU_FAULT("events.lost_wait")) return;
    check(cudaStreamWaitEvent(on.handle, event_of(event).handle, 0), "cudaStreamWaitEvent");
  });
}

bp_status event_sync(bp_device device, bp_context context, bp_event given) {
  return plugin::guard(context, [&] {
    device_of(device).guarded([&] {
      const Event& event = event_of(given);
      check(cudaEventSynchronize(event.handle), "cudaEventSynchronize");
      if (event.fault_word) check_fault(*event.fault_word);
    });
  });
}

bp_status capture_begin(bp_device, bp_stream stream, bp_context context) {
  return on_stream(stream, context, [](Stream& on) { on.begin_recording(); });
}

bp_status capture_end(bp_device, bp_stream stream, bp_context context, bp_graph* graph) {
  return on_stream(stream, context, [&](Stream& on) {
    cudaGraph_t recorded = on.end_recording();
    cudaGraphExec_t ready = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&ready, recorded, 0);
    cudaGraphDestroy(recorded);
    check(error, "cudaGraphInstantiate");
    *graph = reinterpret_cast<bp_graph>(ready);
  });
}

bp_status launch(bp_device, bp_stream stream, bp_context context, bp_graph graph) {
  return on_stream(stream, context, [&](Stream& on) {
    check(cudaGraphLaunch(reinterpret_cast<cudaGraphExec_t>(graph), on.handle), "cudaGraphLaunch");
  });
}

void destroy_graph(bp_device device, bp_graph graph) {
  device_of(device).use_to_destroy();
  cudaGraphExecDestroy(reinterpret_cast<cudaGraphExec_t>(graph));
  cudaGetLastError();
}

}  // namespace

void fill_streams(bp_stream_table& table) {
  table.create = create;
  table.destroy = destroy;
  table.sync = sync;
  table.event_create = event_create;
  table.event_destroy = event_destroy;
  table.event_record = event_record;
  table.event_wait = event_wait;
  table.event_sync = event_sync;
}

void fill_graphs(bp_graph_table& table) {
  table.capture_begin = capture_begin;
  table.capture_end = capture_end;
  table.launch = launch;
  table.destroy = destroy_graph;
}

}  // namespace backplane::cuda
