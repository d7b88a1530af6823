// The objects behind the ABI's handles.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/cublaslt.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/recordings.h"
#include "backends/cuda/runtime.h"
#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::cuda {

// One GPU, opened. Free-threaded: it only changes by being lost.
class Device {
 public:
  // Throws BP_UNAVAILABLE for a GPU that can't run these kernels.
  Device(std::uint32_t number, bool deterministic, bp_type activation);

  // Makes this GPU the calling thread's, which the runtime wants before most calls. Throws BP_DEVICE_LOST once the
  // device is.
  void use();
  // The same for destructors, which follow a loss too.
  void use_to_destroy() const noexcept { cudaSetDevice(static_cast<int>(number)); }
  // Runs a call of the plugin on this GPU; a loss that it meets is remembered.
  template <class Function>
  void guarded(Function&& function) {
    try {
      use();
      function();
    } catch (const plugin::Failure& failure) {
      if (failure.status() == BP_DEVICE_LOST) lost_ = true;
      throw;
    }
  }

  const std::uint32_t number;
  const bool deterministic;  // results don't depend on a step's other tokens, at the cost of speed
  const bp_type activation;  // F32 or BF16
  int processors = 1;        // multiprocessors
  int shared_bytes = 0;      // of shared memory that a block can have
  Recordings& recordings;    // on this GPU
  Blas blas;

 private:
  std::atomic<bool> lost_{false};
};

// Device memory looks like the SDK's host buffers, so that its checks of tensors serve here; nobody on the host follows
// `data` of a device buffer.
struct Buffer : plugin::HostBuffer {
  bp_memory kind = BP_MEMORY_DEVICE;
  void* host = nullptr;  // of imported memory: the core's, registered with the driver as long as the buffer lives
};

// Memory of the device. Throws BP_OUT_OF_MEMORY.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Device& device, std::uint64_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept : device_(other.device_), data_(std::exchange(other.data_, nullptr)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    return *this;
  }
  std::byte* data() const { return data_; }

 private:
  const Device* device_ = nullptr;
  std::byte* data_ = nullptr;
};

// A stream, and the failure that sticks to it.
class Stream {
 public:
  explicit Stream(Device& device);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Throws the failure of earlier work, once it is known.
  void use() const {
    if (failure_) throw *failure_;
  }
  // Waits for all work.
  void sync();
  // Device memory for the work of one call, which the next call reuses. Waits where it grows; not while recording.
  std::byte* scratch(std::uint64_t bytes);
  // Numbers in device memory that are zero whenever no kernel runs: who counts with them leaves them so.
  static constexpr std::uint64_t kCounters = 16384;
  unsigned* counters() const { return reinterpret_cast<unsigned*>(counters_.data()); }
  // Keeps a failure of work for all later calls.
  [[noreturn]] void fail(const plugin::Failure& failure);
  // Work is recorded instead of done. Throws BP_INVALID where it is already, or isn't.
  void begin_recording();
  cudaGraph_t end_recording();
  bool is_recording() const { return recording_; }

  Device& device;
  cudaStream_t handle = nullptr;
  int* fault = nullptr;             // of host memory that kernels reach: a Fault
  std::shared_ptr<int> fault_word;  // owns it, with the events that were recorded on the stream

 private:
  bool recording_ = false;
  std::optional<plugin::Failure> failure_;
  DeviceMemory counters_, scratch_;
  std::uint64_t scratch_bytes_ = 0;
};

// A point in a stream.
struct Event {
  cudaEvent_t handle = nullptr;
  std::shared_ptr<int> fault_word;  // of the stream on which it was recorded last
};

// Throws what kernels have found wrong, if anything.
void check_fault(int fault);

// Runs work of a call that enqueues.
template <class Function>
bp_status on_stream(bp_stream handle, bp_context context, Function&& function) noexcept {
  return plugin::guard(context, [&] {
    plugin::require(handle != nullptr, "work without a stream");
    Stream& stream = *reinterpret_cast<Stream*>(handle);
    stream.use();
    stream.device.guarded([&] { function(stream); });
  });
}

// A weight: rows of floats as the file has them, quantized ones in planes (layout.h), each beginning at a sector. What
// a file stores transposed is turned on the host, once.
struct Weight {
  bp_type type = BP_TYPE_NONE;
  bool transposed = false;
  bool finished = false;
  std::uint64_t rows = 0, columns = 0;         // logical
  std::uint64_t row_bytes = 0, row_pitch = 0;  // of a logical row: what it has, and from one to the next
  std::vector<std::byte> stored;               // of a transposed one, until it is finished
  DeviceMemory memory;
  Matrix matrix;  // all of it, as kernels take it
};

// K and V of all layers, a page of a layer being K[Hk,S,D] and V[Hk,S,Dv]: what one head reads lies together. kernels.h
// has the details.
struct KvCache {
  struct Side {
    DeviceMemory memory;
    CacheSide view;
  };
  struct Layer {
    std::int64_t heads, group, pages;
    Side k, v;
  };
  bp_type type;
  std::int64_t page_size;
  std::vector<Layer> layers;

  // Throws BP_INVALID for a layer that the cache hasn't.
  const Layer& layer(std::uint32_t index) const {
    plugin::require(index < layers.size(), "a layer that the cache hasn't");
    return layers[index];
  }
};

inline Device& device_of(bp_device device) { return *reinterpret_cast<Device*>(device); }
inline Stream& stream_of(bp_stream stream) { return *reinterpret_cast<Stream*>(stream); }
inline Event& event_of(bp_event event) { return *reinterpret_cast<Event*>(event); }
inline Weight& weight_of(bp_weight weight) { return *reinterpret_cast<Weight*>(weight); }
inline KvCache& cache_of(bp_kv kv) { return *reinterpret_cast<KvCache*>(kv); }

constexpr bool is_cache_type(bp_type type) {
  return type == BP_TYPE_F32 || type == BP_TYPE_F16 || type == BP_TYPE_BF16 || type == BP_TYPE_F8_E4M3 ||
         type == BP_TYPE_Q8_0;
}
bool is_weight_type(bp_type type);

constexpr std::uint32_t kAlignment = 256;  // of tensors in buffers

void fill_buffers(bp_buffer_table& table);
void fill_streams(bp_stream_table& table);
void fill_graphs(bp_graph_table& table);
void fill_weights(bp_weights_table& table);
void fill_kv(bp_kv_table& table);

}  // namespace backplane::cuda
