// Events: points of streams.
#include "tests/cuda_emulation/capture.h"
#include "tests/cuda_emulation/runtime.h"

using namespace cuda_emulation;

namespace {

bool reached(const Mark& mark) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  return mark.stream == nullptr || mark.stream->finished >= mark.position;
}

int device_of(const CUevent_st* event) {
  return event != nullptr && event->mark.stream ? event->mark.stream->device : -1;
}

// A captured event stands for a point of the graph, at which nobody can look.
bool captured(CUevent_st* event) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  if (event->capture == nullptr) return false;
  event->capture->invalid = true;
  return true;
}

}  // namespace

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* result, unsigned flags) {
  const Call call("cudaEventCreate");
  if (call.refused()) return call.result();
  *result = new CUevent_st{};
  (*result)->timed = (flags & cudaEventDisableTiming) == 0;
  return call.result(cudaSuccess);
}
cudaError_t cudaEventCreate(cudaEvent_t* result) { return cudaEventCreateWithFlags(result, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Call call("cudaEventDestroy");
  delete event;  // also of a lost device: the host's part is freed in any case
  return call.result();
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned) {
  const auto stream = find_stream(handle);
  const Call call("cudaEventRecord", InCapture::kAllowed, stream ? stream->device : -1);
  if (call.refused()) return call.result();
  if (stream == nullptr || event == nullptr) return call.result(cudaErrorInvalidResourceHandle);
  {
    State& shared = state();
    const std::lock_guard lock(shared.mutex);
    event->capture = stream->capture;
    if (stream->capture != nullptr) {
      event->captured = stream->capture->known[stream.get()];
      return call.result(cudaSuccess);
    }
  }
  auto time = std::make_shared<std::chrono::steady_clock::time_point>();
  const cudaError_t status = enqueue(stream, [time] { *time = std::chrono::steady_clock::now(); });
  event->time = std::move(time);
  event->mark = end_of(stream);
  return call.result(status);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  const auto stream = find_stream(handle);
  const Call call("cudaStreamWaitEvent", InCapture::kAllowed, stream ? stream->device : -1);
  if (call.refused()) return call.result();
  if (stream == nullptr || event == nullptr) return call.result(cudaErrorInvalidResourceHandle);
  State& shared = state();
  std::unique_lock lock(shared.mutex);
  if (event->capture != nullptr) {  // joins the capture, or learns of more of it
    if (stream->capture == nullptr) stream->capture = event->capture;
    if (stream->capture != event->capture) return call.result(cudaErrorInvalidValue);
    Progress& known = stream->capture->known[stream.get()];
    for (const auto& [other, count] : event->captured) known[other] = std::max(known[other], count);
    return call.result(cudaSuccess);
  }
  if (stream->capture != nullptr) {  // would wait for work outside of the graph
    stream->capture->invalid = true;
    return call.result(cudaErrorStreamCaptureIsolation);
  }
  if (event->mark.stream == nullptr) return call.result(cudaSuccess);
  lock.unlock();
  return call.result(enqueue(stream, [mark = event->mark] { drain(mark); }));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Call call("cudaEventQuery", InCapture::kAllowed, device_of(event));
  if (call.refused()) return call.result();
  if (event == nullptr) return call.result(cudaErrorInvalidResourceHandle);
  if (captured(event)) return call.result(cudaErrorCapturedEvent);
  if (reached(event->mark)) return call.result(cudaSuccess);
  drain(event->mark);  // so that whoever asks again gets on
  const cudaError_t status = lost(call.device());
  return call.result(status == cudaSuccess ? cudaErrorNotReady : status);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Call call("cudaEventSynchronize", InCapture::kAllowed, device_of(event));
  if (call.refused()) return call.result();
  if (event == nullptr) return call.result(cudaErrorInvalidResourceHandle);
  if (captured(event)) return call.result(cudaErrorCapturedEvent);
  if (event->mark.stream != nullptr) drain(event->mark);
  return call.result(lost(call.device()));
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const Call call("cudaEventElapsedTime");
  if (call.refused()) return call.result();
  if (start == nullptr || end == nullptr || !start->timed || !end->timed || !start->time || !end->time) {
    return call.result(cudaErrorInvalidResourceHandle);
  }
  if (!reached(start->mark) || !reached(end->mark)) return call.result(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *start->time).count();
  return call.result(cudaSuccess);
}

}  // extern "C"
