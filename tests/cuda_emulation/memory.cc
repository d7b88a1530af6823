// Memory of the devices and of the host that the devices know of.
#include <cstdlib>
#include <cstring>
#include <iterator>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "tests/cuda_emulation/runtime.h"

namespace cuda_emulation {

namespace {

std::uintptr_t address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

void close_memory([[maybe_unused]] std::uintptr_t address, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(reinterpret_cast<void*>(address), bytes);
#endif
}

void open_memory([[maybe_unused]] std::uintptr_t address, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(reinterpret_cast<void*>(address), bytes);
#endif
}

// The first allocation that ends after the address. The state's mutex is held.
std::map<std::uintptr_t, Allocation>::iterator allocation_at(State& shared, std::uintptr_t address) {
  auto found = shared.memory.upper_bound(address);
  if (found == shared.memory.begin()) return shared.memory.end();
  --found;
  return address < found->first + found->second.bytes ? found : shared.memory.end();
}

cudaError_t allocate(const Call& call, void** result, std::size_t bytes, Memory kind) {
  if (result == nullptr) return call.result(cudaErrorInvalidValue);
  *result = nullptr;
  if (bytes == 0) return call.result(cudaSuccess);
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  Device& device = shared.devices[static_cast<std::size_t>(call.device())];
  const bool counted = kind == Memory::kDevice || kind == Memory::kManaged;
  const bool full = counted && (bytes > shared.config.memory || device.used > shared.config.memory - bytes);
  if (++shared.allocations == shared.faults.oom_at_allocation || full) return call.result(cudaErrorMemoryAllocation);
  void* memory = nullptr;  // the exact size, so that AddressSanitizer sees an overrun of a single byte
  if (posix_memalign(&memory, 256, bytes) != 0) return call.result(cudaErrorMemoryAllocation);
  std::memset(memory, shared.config.run_kernels ? 0xff : 0, bytes);  // what no kernel writes has to make sense at least
  if (counted) device.used += bytes;
  shared.memory[address_of(memory)] = {bytes, call.device(), kind};
  if (kind == Memory::kDevice && shared.windows == 0) close_memory(address_of(memory), bytes);
  *result = memory;
  return call.result(cudaSuccess);
}

cudaError_t release_memory(const Call& call, void* p, bool of_device) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  const auto found = shared.memory.find(address_of(p));
  if (found == shared.memory.end()) return call.result(cudaErrorInvalidValue);
  const Allocation gone = found->second;
  const bool counted = gone.kind == Memory::kDevice || gone.kind == Memory::kManaged;
  if (counted != of_device || gone.kind == Memory::kRegistered) return call.result(cudaErrorInvalidValue);
  if (counted) shared.devices[static_cast<std::size_t>(gone.device)].used -= gone.bytes;
  open_memory(found->first, gone.bytes);
  shared.memory.erase(found);
  std::free(p);
  return call.result(cudaSuccess);
}

// Freeing waits for the device, as the real calls do.
cudaError_t free_after_work(const char* name, void* p, bool of_device) {
  const Call call(name, InCapture::kForbidden);
  if (p == nullptr || call.refused()) return call.result();
  for (int i = 0; i < state().config.devices; ++i) drain_device(i);
  return release_memory(call, p, of_device);
}

}  // namespace

const Allocation* find_memory(const void* address, std::size_t bytes) {
  State& shared = state();
  const auto found = allocation_at(shared, address_of(address));
  if (found == shared.memory.end()) return nullptr;
  const std::size_t offset = address_of(address) - found->first;
  return bytes <= found->second.bytes - offset ? &found->second : nullptr;
}

#if defined(__SANITIZE_ADDRESS__)
MemoryWindow::MemoryWindow() {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  if (shared.windows++ > 0) return;
  for (const auto& [address, allocation] : shared.memory) {
    if (allocation.kind == Memory::kDevice) open_memory(address, allocation.bytes);
  }
}

MemoryWindow::~MemoryWindow() {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  if (--shared.windows > 0) return;
  for (const auto& [address, allocation] : shared.memory) {
    if (allocation.kind == Memory::kDevice) close_memory(address, allocation.bytes);
  }
}
#else
MemoryWindow::MemoryWindow() = default;
MemoryWindow::~MemoryWindow() {}
#endif

}  // namespace cuda_emulation

using namespace cuda_emulation;

extern "C" {

cudaError_t cudaMalloc(void** result, std::size_t bytes) {
  const Call call("cudaMalloc", InCapture::kForbidden);
  return call.refused() ? call.result() : allocate(call, result, bytes, Memory::kDevice);
}

cudaError_t cudaFree(void* p) { return free_after_work("cudaFree", p, true); }

cudaError_t cudaMallocAsync(void** result, std::size_t bytes, cudaStream_t stream) {
  const Call call("cudaMallocAsync", InCapture::kForbidden);
  if (call.refused()) return call.result();
  if (find_stream(stream) == nullptr) return call.result(cudaErrorInvalidResourceHandle);
  return allocate(call, result, bytes, Memory::kDevice);
}

cudaError_t cudaFreeAsync(void* p, cudaStream_t handle) {
  const Call call("cudaFreeAsync", InCapture::kForbidden);
  if (p == nullptr || call.refused()) return call.result();
  const auto stream = find_stream(handle);
  if (stream == nullptr) return call.result(cudaErrorInvalidResourceHandle);
  return call.result(enqueue(stream, [call, p] { release_memory(call, p, true); }));
}

cudaError_t cudaMallocManaged(void** result, std::size_t bytes, unsigned) {
  const Call call("cudaMallocManaged", InCapture::kForbidden);
  return call.refused() ? call.result() : allocate(call, result, bytes, Memory::kManaged);
}

cudaError_t cudaHostAlloc(void** result, std::size_t bytes, unsigned) {
  const Call call("cudaHostAlloc", InCapture::kForbidden);
  return call.refused() ? call.result() : allocate(call, result, bytes, Memory::kPinned);
}

cudaError_t cudaMallocHost(void** result, std::size_t bytes) {
  const Call call("cudaMallocHost", InCapture::kForbidden);
  return call.refused() ? call.result() : allocate(call, result, bytes, Memory::kPinned);
}

cudaError_t cudaFreeHost(void* p) { return free_after_work("cudaFreeHost", p, false); }

cudaError_t cudaHostRegister(void* p, std::size_t bytes, unsigned) {
  const Call call("cudaHostRegister", InCapture::kForbidden);
  if (call.refused()) return call.result();
  if (p == nullptr || bytes == 0) return call.result(cudaErrorInvalidValue);
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  const auto next = shared.memory.lower_bound(address_of(p));
  const bool meets_next = next != shared.memory.end() && next->first < address_of(p) + bytes;
  if (meets_next || allocation_at(shared, address_of(p)) != shared.memory.end()) {
    return call.result(cudaErrorHostMemoryAlreadyRegistered);
  }
  shared.memory[address_of(p)] = {bytes, call.device(), Memory::kRegistered};
  return call.result(cudaSuccess);
}

cudaError_t cudaHostUnregister(void* p) {
  const Call call("cudaHostUnregister", InCapture::kForbidden);
  if (call.refused()) return call.result();
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  const auto found = shared.memory.find(address_of(p));
  if (found == shared.memory.end() || found->second.kind != Memory::kRegistered) {
    return call.result(cudaErrorHostMemoryNotRegistered);
  }
  shared.memory.erase(found);
  return call.result(cudaSuccess);
}

cudaError_t cudaHostGetDevicePointer(void** result, void* p, unsigned) {
  const Call call("cudaHostGetDevicePointer");
  if (call.refused()) return call.result();
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  const Allocation* found = find_memory(p, 1);
  if (found == nullptr || found->kind == Memory::kDevice) return call.result(cudaErrorInvalidValue);
  *result = p;
  return call.result(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* p) {
  const Call call("cudaPointerGetAttributes");
  if (call.refused()) return call.result();
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  const Allocation* found = find_memory(p, 1);
  *attributes = {};
  attributes->device = found != nullptr ? found->device : -2;
  attributes->type = found == nullptr                  ? cudaMemoryTypeUnregistered
                     : found->kind == Memory::kDevice  ? cudaMemoryTypeDevice
                     : found->kind == Memory::kManaged ? cudaMemoryTypeManaged
                                                       : cudaMemoryTypeHost;
  if (found != nullptr) attributes->devicePointer = const_cast<void*>(p);
  if (found == nullptr || found->kind != Memory::kDevice) attributes->hostPointer = const_cast<void*>(p);
  return call.result(cudaSuccess);
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total) {
  const Call call("cudaMemGetInfo");
  if (call.refused()) return call.result();
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  *total = shared.config.memory;
  *free_bytes = shared.config.memory - shared.devices[static_cast<std::size_t>(call.device())].used;
  return call.result(cudaSuccess);
}

}  // extern "C"
