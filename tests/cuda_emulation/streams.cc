// Streams: queues whose work is done by the thread that waits for it.
#include <algorithm>

#include "tests/cuda_emulation/capture.h"
#include "tests/cuda_emulation/runtime.h"

namespace cuda_emulation {

namespace {

Device& device_of(State& shared, const CUstream_st& stream) {
  return shared.devices[static_cast<std::size_t>(stream.device)];
}

void push(CUstream_st& stream, Operation operation) {
  stream.queue.push_back(std::move(operation));
  ++stream.enqueued;
}

void push_wait(CUstream_st& stream, const std::shared_ptr<CUstream_st>& other) {
  if (other->finished == other->enqueued) return;
  push(stream, [mark = Mark{other, other->enqueued}] { drain(mark); });
}

// The null stream waits for all blocking streams of its device, and they for it.
void push_implicit_waits(State& shared, const std::shared_ptr<CUstream_st>& stream) {
  Device& device = device_of(shared, *stream);
  if (stream == device.null_stream) {
    for (const auto& other : device.streams) {
      if (other->blocking) push_wait(*stream, other);
    }
  } else if (stream->blocking) {
    push_wait(*stream, device.null_stream);
  }
}

}  // namespace

std::shared_ptr<CUstream_st> find_stream(cudaStream_t handle) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread) {
    if (shared.devices.empty()) return nullptr;
    if (current_device() >= shared.config.devices) current_device() = 0;
    return shared.devices[static_cast<std::size_t>(current_device())].null_stream;
  }
  for (const Device& device : shared.devices) {
    for (const auto& stream : device.streams) {
      if (stream.get() == handle) return stream;
    }
  }
  return nullptr;
}

cudaError_t enqueue(const std::shared_ptr<CUstream_st>& stream, Operation operation) {
  State& shared = state();
  {
    const std::lock_guard lock(shared.mutex);
    if (stream->capture != nullptr) {
      if (stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
      capture_operation(*stream, std::move(operation));
      return cudaSuccess;
    }
    push_implicit_waits(shared, stream);
    push(*stream, std::move(operation));
    if (shared.config.deferred) return cudaSuccess;
  }
  drain(end_of(stream));
  return cudaSuccess;
}

Mark end_of(const std::shared_ptr<CUstream_st>& stream) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  return {stream, stream->enqueued};
}

void drain(const Mark& mark) {
  State& shared = state();
  CUstream_st& stream = *mark.stream;
  std::unique_lock lock(shared.mutex);
  while (stream.finished < mark.position) {
    if (stream.busy) {  // by another thread, which will notify
      shared.progress.wait(lock);
      continue;
    }
    stream.busy = true;
    const Operation operation = std::move(stream.queue.front());
    stream.queue.pop_front();
    const bool skipped = device_of(shared, stream).lost != cudaSuccess;
    lock.unlock();
    if (!skipped) {
      const MemoryWindow window;
      operation();
    }
    lock.lock();
    stream.busy = false;
    ++stream.finished;
    shared.progress.notify_all();
  }
}

void drain_device(int device) {
  State& shared = state();
  std::vector<std::shared_ptr<CUstream_st>> streams;
  {
    const std::lock_guard lock(shared.mutex);
    const Device& all = shared.devices[static_cast<std::size_t>(device)];
    streams = all.streams;
    streams.push_back(all.null_stream);
  }
  for (const auto& stream : streams) drain(end_of(stream));
}

}  // namespace cuda_emulation

using namespace cuda_emulation;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* result, unsigned flags, int) {
  const Call call("cudaStreamCreate");
  if (call.refused()) return call.result();
  auto stream = std::make_shared<CUstream_st>();
  stream->device = call.device();
  stream->blocking = (flags & cudaStreamNonBlocking) == 0;
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  *result = stream.get();
  shared.devices[static_cast<std::size_t>(call.device())].streams.push_back(std::move(stream));
  return call.result(cudaSuccess);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* result, unsigned flags) {
  return cudaStreamCreateWithPriority(result, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* result) {
  return cudaStreamCreateWithPriority(result, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const auto stream = find_stream(handle);
  const Call call("cudaStreamDestroy", InCapture::kAllowed, stream ? stream->device : -1);
  if (stream == nullptr || handle == nullptr) return call.result(cudaErrorInvalidResourceHandle);
  drain(end_of(stream));  // also of a lost device, which drops it
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  std::erase(shared.devices[static_cast<std::size_t>(stream->device)].streams, stream);
  return call.result();
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const auto stream = find_stream(handle);
  const Call call("cudaStreamSynchronize", InCapture::kForbidden, stream ? stream->device : -1);
  if (call.refused()) return call.result();
  if (stream == nullptr) return call.result(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) {
    stream->capture->invalid = true;
    return call.result(cudaErrorStreamCaptureUnsupported);
  }
  drain(end_of(stream));
  return call.result(lost(stream->device));
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const auto stream = find_stream(handle);
  const Call call("cudaStreamQuery", InCapture::kForbidden, stream ? stream->device : -1);
  if (call.refused()) return call.result();
  if (stream == nullptr) return call.result(cudaErrorInvalidResourceHandle);
  const Mark end = end_of(stream);
  if (stream->finished >= end.position) return call.result(cudaSuccess);
  drain(end);  // a program that asks again and again must get on
  const cudaError_t status = lost(stream->device);
  return call.result(status == cudaSuccess ? cudaErrorNotReady : status);
}

cudaError_t cudaDeviceSynchronize() {
  const Call call("cudaDeviceSynchronize", InCapture::kForbidden);
  if (call.refused()) return call.result();
  if (disturbs_captures_of(call.device())) return call.result(cudaErrorStreamCaptureUnsupported);
  drain_device(call.device());
  return call.result(lost(call.device()));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  const auto stream = find_stream(handle);
  const Call call("cudaLaunchHostFunc", InCapture::kAllowed, stream ? stream->device : -1);
  if (call.refused()) return call.result();
  if (stream == nullptr) return call.result(cudaErrorInvalidResourceHandle);
  if (function == nullptr) return call.result(cudaErrorInvalidValue);
  return call.result(enqueue(stream, [function, data] {
    in_host_function() = true;
    function(data);
    in_host_function() = false;
  }));
}

}  // extern "C"
