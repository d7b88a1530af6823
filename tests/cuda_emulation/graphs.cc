// Capture of streams, and graphs.
#include <algorithm>

#include "tests/cuda_emulation/capture.h"
#include "tests/cuda_emulation/runtime.h"

namespace cuda_emulation {

void capture_operation(CUstream_st& stream, Operation operation) {
  Capture& capture = *stream.capture;
  capture.operations.push_back(std::move(operation));
  capture.known[&stream][&stream] = ++capture.tails[&stream];
}

bool disturbs_capture() {
  bool found = false;
  for (Device& device : state().devices) {
    for (const auto& stream : device.streams) {
      if (stream->capture == nullptr || stream->capture->mode == cudaStreamCaptureModeRelaxed) continue;
      const bool own = stream->capture->thread == std::this_thread::get_id();
      if (!own && stream->capture->mode == cudaStreamCaptureModeThreadLocal) continue;
      stream->capture->invalid = true;
      found = true;
    }
  }
  return found;
}

bool disturbs_captures_of(int device) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  bool found = false;
  for (const auto& stream : shared.devices[static_cast<std::size_t>(device)].streams) {
    if (stream->capture == nullptr) continue;
    stream->capture->invalid = true;
    found = true;
  }
  return found;
}

namespace {

// Work that the stream where the capture began doesn't come after would be lost.
bool all_joined(const Capture& capture) {
  const auto known = capture.known.find(capture.origin);
  return std::all_of(capture.tails.begin(), capture.tails.end(), [&](const auto& tail) {
    if (known == capture.known.end()) return tail.second == 0;
    const auto count = known->second.find(tail.first);
    return count != known->second.end() && count->second >= tail.second;
  });
}

cudaError_t end_capture(CUstream_st& stream, cudaGraph_t* result) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  const auto capture = stream.capture;
  if (capture == nullptr) return cudaErrorIllegalState;
  if (capture->origin != &stream) return cudaErrorStreamCaptureUnmatched;
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
    return cudaErrorStreamCaptureWrongThread;
  }
  for (const Device& device : shared.devices) {
    for (const auto& other : device.streams) {
      if (other->capture == capture) other->capture = nullptr;
    }
  }
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (!all_joined(*capture)) return cudaErrorStreamCaptureUnjoined;
  *result = new CUgraph_st{std::move(capture->operations)};
  return cudaSuccess;
}

}  // namespace
}  // namespace cuda_emulation

using namespace cuda_emulation;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const auto stream = find_stream(handle);
  const Call call("cudaStreamBeginCapture", InCapture::kAllowed, stream ? stream->device : -1);
  if (call.refused()) return call.result();
  if (handle == nullptr) return call.result(cudaErrorStreamCaptureUnsupported);
  if (stream == nullptr) return call.result(cudaErrorInvalidResourceHandle);
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  if (stream->capture != nullptr) return call.result(cudaErrorIllegalState);
  auto capture = std::make_shared<Capture>();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = stream.get();
  stream->capture = std::move(capture);
  return call.result(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* result) {
  const auto stream = find_stream(handle);
  const Call call("cudaStreamEndCapture", InCapture::kAllowed, stream ? stream->device : -1);
  *result = nullptr;
  if (stream == nullptr) return call.result(cudaErrorInvalidResourceHandle);
  const cudaError_t status = end_capture(*stream, result);
  return call.result(call.refused() ? call.result() : status);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* result) {
  const auto stream = find_stream(handle);
  const Call call("cudaStreamIsCapturing", InCapture::kAllowed, stream ? stream->device : -1);
  if (call.refused()) return call.result();
  if (stream == nullptr) return call.result(cudaErrorInvalidResourceHandle);
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  *result = stream->capture == nullptr ? cudaStreamCaptureStatusNone
            : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return call.result(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* result, cudaGraph_t graph, unsigned long long) {
  const Call call("cudaGraphInstantiate");
  if (call.refused()) return call.result();
  if (graph == nullptr) return call.result(cudaErrorInvalidValue);
  *result = new CUgraphExec_st{std::make_shared<const std::vector<Operation>>(graph->operations)};
  return call.result(cudaSuccess);
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* result, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiate(result, graph, flags);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return Call("cudaGraphUpload").result(); }

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t handle) {
  const auto stream = find_stream(handle);
  const Call call("cudaGraphLaunch", InCapture::kAllowed, stream ? stream->device : -1);
  if (call.refused()) return call.result();
  if (graph == nullptr) return call.result(cudaErrorInvalidValue);
  if (stream == nullptr) return call.result(cudaErrorInvalidResourceHandle);
  return call.result(enqueue(stream, [operations = graph->operations, device = stream->device] {
    for (const Operation& operation : *operations) {
      if (lost(device) == cudaSuccess) operation();
    }
  }));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const Call call("cudaGraphDestroy");
  if (graph == nullptr) return call.result(cudaErrorInvalidValue);
  delete graph;
  return call.result();
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  const Call call("cudaGraphExecDestroy");
  if (graph == nullptr) return call.result(cudaErrorInvalidValue);
  delete graph;  // launches that wait keep the operations
  return call.result();
}

}  // extern "C"
