#include "backends/cuda/device.h"

#include <map>
#include <mutex>
#include <string>

#include "backends/cuda/kernels.h"

namespace backplane::cuda {

Recordings& recordings_of(std::uint32_t gpu) {
  static std::mutex mutex;
  static std::map<std::uint32_t, Recordings> all;
  const std::lock_guard lock(mutex);
  return all[gpu];
}

Device::Device(std::uint32_t index, bool is_deterministic, bp_type activations)
    : number(index),
      deterministic(is_deterministic),
      activation(activations),
      recordings(recordings_of(index)),
      blas(recordings) {
  use();
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, static_cast<int>(index)),
        "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, static_cast<int>(index)),
        "cudaDeviceGetAttribute");
  check(probe_kernels(), "the kernels of this build on this GPU");
}

void Device::use() {
  if (lost_) throw plugin::Failure(BP_DEVICE_LOST, "this GPU was lost");
  check(cudaSetDevice(static_cast<int>(number)), "cudaSetDevice");
}

DeviceMemory::DeviceMemory(Device& device, std::uint64_t bytes) : device_(&device) {
  if (bytes == 0) return;
  void* data = nullptr;
  check(cudaMalloc(&data, bytes), "cudaMalloc");
  data_ = static_cast<std::byte*>(data);
}

DeviceMemory::~DeviceMemory() {
  if (data_ == nullptr) return;
  device_->use_to_destroy();
  cudaFree(data_);
  cudaGetLastError();
}

Stream::Stream(Device& on) : device(on), counters_(on, kCounters * sizeof(unsigned)) {
  check(cudaMemset(counters_.data(), 0, kCounters * sizeof(unsigned)), "cudaMemset");
  check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");  // for which this stream won't wait
  void* word = nullptr;
  check(cudaHostAlloc(&word, sizeof(int), cudaHostAllocMapped | cudaHostAllocPortable), "cudaHostAlloc");
  fault_word = std::shared_ptr<int>(static_cast<int*>(word), [](int* given) {
    cudaFreeHost(given);
    cudaGetLastError();
  });
  fault = fault_word.get();
  *fault = kNoFault;
  const cudaError_t error = cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking);
  check(error, "cudaStreamCreateWithFlags");
}

Stream::~Stream() {
  device.use_to_destroy();
  cudaStreamSynchronize(handle);
  cudaStreamDestroy(handle);
  cudaGetLastError();
  if (recording_) device.recordings.end();
}

// Relaxed, because other threads go on allocating while one records, and none of that goes to this stream.
void Stream::begin_recording() {
  plugin::require(!recording_, "a capture on a stream that records already");
  device.recordings.begin(
      [&] { check(cudaStreamBeginCapture(handle, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture"); });
  recording_ = true;
}

cudaGraph_t Stream::end_recording() {
  plugin::require(recording_, "the end of a capture that never began");
  recording_ = false;
  cudaGraph_t recorded = nullptr;
  const cudaError_t error = cudaStreamEndCapture(handle, &recorded);
  device.recordings.end();
  check(error, "cudaStreamEndCapture");
  return recorded;
}

std::byte* Stream::scratch(std::uint64_t bytes) {
  plugin::require(!recording_, "a move of pages while work is being recorded");
  if (bytes > scratch_bytes_) {
    check(cudaStreamSynchronize(handle), "cudaStreamSynchronize");
    scratch_bytes_ = 0;
    scratch_ = DeviceMemory();
    scratch_ = DeviceMemory(device, bytes);
    scratch_bytes_ = bytes;
  }
  return scratch_.data();
}

void Stream::fail(const plugin::Failure& failure) {
  if (!failure_) failure_ = failure;
  throw *failure_;
}

namespace {

const char* fault_text(int fault) {
  switch (fault) {
    case kIdFault:
      return "a token id outside the vocabulary";
    case kPageFault:
      return "a page that is needed is missing or outside the cache";
    case kSlotFault:
      return "a slot outside the cache";
    case kSampleFault:
      return "a temperature, top_p, min_p or top_k that makes no sense";
    default:
      return "an index outside its tensor";
  }
}

}  // namespace

void check_fault(int fault) {
  if (fault != kNoFault) throw plugin::Failure(BP_INVALID, fault_text(fault));
}

void Stream::sync() {
  plugin::require(!recording_, "a wait while work is being recorded");
  try {
    check(cudaStreamSynchronize(handle), "cudaStreamSynchronize");
  } catch (const plugin::Failure& failure) {
    fail(failure);
  }
  try {
    check_fault(*fault);
  } catch (const plugin::Failure& failure) {
    fail(failure);
  }
}

}  // namespace backplane::cuda
