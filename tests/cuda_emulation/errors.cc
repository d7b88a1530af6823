// Calls, their errors, injected faults, and the errors' names.
#include <algorithm>
#include <cstring>

#include "tests/cuda_emulation/capture.h"
#include "tests/cuda_emulation/runtime.h"

namespace cuda_emulation {

namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local int device_of_thread = 0;
thread_local bool host_function = false;

struct ErrorText {
  cudaError_t error;
  const char *name, *text;
};
#define ERROR_TEXT(error, text) \
  { error, #error, text }
constexpr ErrorText kErrors[] = {
    ERROR_TEXT(cudaSuccess, "no error"),
    ERROR_TEXT(cudaErrorInvalidValue, "invalid argument"),
    ERROR_TEXT(cudaErrorMemoryAllocation, "out of memory"),
    ERROR_TEXT(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR_TEXT(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    ERROR_TEXT(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    ERROR_TEXT(cudaErrorInvalidDeviceFunction, "invalid device function"),
    ERROR_TEXT(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR_TEXT(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR_TEXT(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR_TEXT(cudaErrorNotReady, "device not ready"),
    ERROR_TEXT(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR_TEXT(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    ERROR_TEXT(cudaErrorLaunchFailure, "unspecified launch failure"),
    ERROR_TEXT(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    ERROR_TEXT(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    ERROR_TEXT(cudaErrorNotPermitted, "operation not permitted"),
    ERROR_TEXT(cudaErrorNotSupported, "operation not supported"),
    ERROR_TEXT(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ERROR_TEXT(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    ERROR_TEXT(cudaErrorStreamCaptureUnmatched, "the capture was not initiated in this stream"),
    ERROR_TEXT(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ERROR_TEXT(cudaErrorStreamCaptureImplicit,
               "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR_TEXT(cudaErrorStreamCaptureWrongThread,
               "attempt to terminate a thread-local capture sequence from another thread"),
    ERROR_TEXT(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
};
#undef ERROR_TEXT

const ErrorText* find_error(cudaError_t error) {
  for (const ErrorText& known : kErrors) {
    if (known.error == error) return &known;
  }
  return nullptr;
}

}  // namespace

// There are some thirty, and one thread after another asks for the same few.
void count_call(State& shared, const char* name) {
  const auto is_known = [name](const auto& known) { return known.first == name; };
  const auto known = std::find_if(shared.calls_by_name.begin(), shared.calls_by_name.end(), is_known);
  if (known != shared.calls_by_name.end()) {
    ++known->second;
  } else {
    shared.calls_by_name.emplace_back(name, 1);
  }
}

int& current_device() { return device_of_thread; }
bool& in_host_function() { return host_function; }

Call::Call(const char* name, InCapture rule, int device) : device_(device) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  if (shared.devices.empty()) {
    status_ = cudaErrorNoDevice;
    return;
  }
  if (current_device() >= shared.config.devices) current_device() = 0;  // chosen before configure() took it away
  if (device_ < 0) device_ = current_device();
  count_call(shared, name);
  if (++shared.calls == shared.faults.loss_at_call)
    shared.devices[static_cast<std::size_t>(device_)].lost = cudaErrorLaunchFailure;
  if (host_function) {
    status_ = cudaErrorNotPermitted;
  } else if (shared.devices[static_cast<std::size_t>(device_)].lost != cudaSuccess) {
    status_ = shared.devices[static_cast<std::size_t>(device_)].lost;
  } else if (rule == InCapture::kForbidden && disturbs_capture()) {
    status_ = cudaErrorStreamCaptureUnsupported;
  }
}

cudaError_t Call::result(cudaError_t status) const {
  if (status != cudaSuccess && status != cudaErrorNotReady) last_error = status;
  return status;
}

void lose(int device, cudaError_t error) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  cudaError_t& lost = shared.devices[static_cast<std::size_t>(device)].lost;
  if (lost == cudaSuccess) lost = error;
}

cudaError_t lost(int device) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  const auto place = static_cast<std::size_t>(device);
  return place < shared.devices.size() ? shared.devices[place].lost : cudaSuccess;
}

}  // namespace cuda_emulation

using namespace cuda_emulation;

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = lost(current_device());  // an error that stays can't be cleared
  return error;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* known = find_error(error);
  return known != nullptr ? known->name : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  const ErrorText* known = find_error(error);
  return known != nullptr ? known->text : "unrecognized error code";
}

}  // extern "C"
