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

cudaEvent_t event_of(bp_event event) { return reinterpret_cast<cudaEvent_t>(event); }

bp_status event_create(bp_device device, bp_context context, bp_event* event) {
  return plugin::guard(context, [&] {
    device_of(device).guarded([&] {
      cudaEvent_t made = nullptr;
      check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "cudaEventCreateWithFlags");
      *event = reinterpret_cast<bp_event>(made);
    });
  });
}

void event_destroy(bp_device device, bp_event event) {
  device_of(device).use_to_destroy();
  cudaEventDestroy(event_of(event));
  cudaGetLastError();
}

bp_status event_record(bp_device, bp_stream stream, bp_context context, bp_event event) {
  return on_stream(stream, context,
                   [&](Stream& on) { check(cudaEventRecord(event_of(event), on.handle), "cudaEventRecord"); });
}

bp_status event_wait(bp_device, bp_stream stream, bp_context context, bp_event event) {
  return on_stream(stream, context, [&](Stream& on) {
    if (CU_FAULT("events.lost_wait")) return;
    check(cudaStreamWaitEvent(on.handle, event_of(event), 0), "cudaStreamWaitEvent");
  });
}

bp_status event_sync(bp_device device, bp_context context, bp_event event) {
  return plugin::guard(context, [&] {
    device_of(device).guarded([&] { check(cudaEventSynchronize(event_of(event)), "cudaEventSynchronize"); });
  });
}

// Relaxed, because other threads go on allocating while one records, and none of that goes to this stream.
bp_status capture_begin(bp_device, bp_stream stream, bp_context context) {
  return on_stream(stream, context, [](Stream& on) {
    plugin::require(!on.capturing, "a capture on a stream that records already");
    check(cudaStreamBeginCapture(on.handle, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
    on.capturing = true;
  });
}

bp_status capture_end(bp_device, bp_stream stream, bp_context context, bp_graph* graph) {
  return on_stream(stream, context, [&](Stream& on) {
    plugin::require(on.capturing, "the end of a capture that never began");
    on.capturing = false;
    cudaGraph_t recorded = nullptr;
    check(cudaStreamEndCapture(on.handle, &recorded), "cudaStreamEndCapture");
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
