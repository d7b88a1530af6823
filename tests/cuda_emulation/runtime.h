// The state behind the emulated runtime API: devices, memory, streams, and what a test injected.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/cuda_emulation/include/cuda_emulation/control.h"

namespace cuda_emulation {

using Operation = std::function<void()>;

/// What a stream was when it began to be captured, and what it did since.
struct Capture;

/// A point of a stream, reached when the stream has finished that many operations.
struct Mark {
  std::shared_ptr<CUstream_st> stream;
  std::uint64_t position = 0;
};

enum class Memory { kDevice, kPinned, kRegistered, kManaged };

struct Allocation {
  std::size_t bytes;
  int device;
  Memory kind;
};

struct Device {
  std::uint64_t used = 0;
  cudaError_t lost = cudaSuccess;  ///< the error that stays
  std::shared_ptr<CUstream_st> null_stream;
  std::vector<std::shared_ptr<CUstream_st>> streams;
};

struct State {
  std::mutex mutex;  ///< guards everything here and all streams; not held while an operation runs
  std::condition_variable progress;
  Config config = config_from_environment();
  Faults faults;
  std::uint64_t calls = 0, allocations = 0, launches = 0;
  std::vector<std::pair<const char*, std::uint64_t>> calls_by_name;  ///< by literal: a name may have several
  std::map<int, std::uint64_t> copied;
  std::map<std::uintptr_t, Allocation> memory;  ///< by first address
  std::vector<Device> devices;
  std::map<const void*, int> shared_limits;  ///< of kernels that cudaFuncSetAttribute allowed more
  std::string report;
  unsigned windows = 0;  ///< operations that run and may touch device memory
};

/// Made on first use, never destroyed: plugins may be unloaded after everything else.
State& state();
/// The state's mutex must be held.
void count_call(State& shared, const char* name);
int& current_device();

/// Whether a call may be made while a stream is captured.
enum class InCapture { kAllowed, kForbidden };

/// One call of the API: counted, refused if its device is lost or faults say so. Every exported function begins with
/// one.
class Call {
 public:
  explicit Call(const char* name, InCapture rule = InCapture::kAllowed, int device = -1);
  bool refused() const { return status_ != cudaSuccess; }
  cudaError_t result() const { return result(status_); }
  /// Keeps an error for cudaGetLastError().
  cudaError_t result(cudaError_t status) const;
  int device() const { return device_; }

 private:
  int device_;
  cudaError_t status_ = cudaSuccess;
};

/// Loses a device: every later call on it fails with this.
void lose(int device, cudaError_t error);
cudaError_t lost(int device);

/// The allocation that holds the whole range. The state's mutex must be held.
const Allocation* find_memory(const void* address, std::size_t bytes);

/// While it lives, operations may touch device memory; otherwise AddressSanitizer reports who does.
class MemoryWindow {
 public:
  MemoryWindow();
  ~MemoryWindow();
  MemoryWindow(const MemoryWindow&) = delete;
  MemoryWindow& operator=(const MemoryWindow&) = delete;
};

/// The stream behind a handle, of the current device for the null handle; null for a handle that isn't one.
std::shared_ptr<CUstream_st> find_stream(cudaStream_t handle);
/// Puts work into a stream, or into its capture. Returns what the API call has to.
cudaError_t enqueue(const std::shared_ptr<CUstream_st>& stream, Operation operation);
/// Runs what a stream holds up to a point, and what that waits for.
void drain(const Mark& mark);
Mark end_of(const std::shared_ptr<CUstream_st>& stream);
/// Everything that a device still has to do.
void drain_device(int device);
/// True on a thread that runs a callback of cudaLaunchHostFunc.
bool& in_host_function();

/// Copies bytes as an operation does, counted by direction.
void move_bytes(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);

struct Launch;
/// Runs all blocks of a launch on the host's threads. Returns what went wrong, empty if nothing.
std::string run_blocks(const Launch& launch, const Config& config);
std::string kernel_name(const void* kernel);

}  // namespace cuda_emulation

struct CUstream_st {
  int device = 0;
  bool blocking = true;  ///< waits for the null stream, and that for it
  std::deque<cuda_emulation::Operation> queue;
  std::uint64_t enqueued = 0, finished = 0;
  bool busy = false;
  std::shared_ptr<cuda_emulation::Capture> capture;
};
