// What a program can ask of the devices.
#include <cstdio>
#include <cstring>

#include "tests/cuda_emulation/runtime.h"

using namespace cuda_emulation;

namespace {

constexpr int kSharedOptIn = 163 << 10;  // of compute capability 8.0; 9.0 has more, which nothing may rely on

Config config() {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  return shared.config;
}

int attribute_value(const Config& config, cudaDeviceAttr attribute) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      return 1024;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      return 1024;
    case cudaDevAttrMaxBlockDimZ:
      return 64;
    case cudaDevAttrMaxGridDimX:
      return 0x7fffffff;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return 48 << 10;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return kSharedOptIn;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return 164 << 10;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return 1 << 10;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrMultiProcessorCount:
      return config.processors;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return 2048;
    case cudaDevAttrMaxRegistersPerBlock:
      return 65536;
    case cudaDevAttrL2CacheSize:
      return 40 << 20;
    case cudaDevAttrComputeCapabilityMajor:
      return config.major;
    case cudaDevAttrComputeCapabilityMinor:
      return config.minor;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrMemoryPoolsSupported:
      return 1;
    case cudaDevAttrAsyncEngineCount:
      return 2;
    default:
      return 0;
  }
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  const int devices = config().devices;
  *count = devices;
  return devices > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  if (device < 0 || device >= shared.config.devices) return cudaErrorInvalidDevice;
  current_device() = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const Config now = config();
  if (device < 0 || device >= now.devices) return cudaErrorInvalidDevice;
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated CUDA device %d", device);
  properties->totalGlobalMem = now.memory;
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = kSharedOptIn;
  properties->sharedMemPerMultiprocessor = 164 << 10;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->maxBlocksPerMultiProcessor = 32;
  properties->major = now.major;
  properties->minor = now.minor;
  properties->multiProcessorCount = now.processors;
  properties->l2CacheSize = 40 << 20;
  properties->unifiedAddressing = properties->canMapHostMemory = properties->concurrentKernels = 1;
  properties->pciBusID = device + 1;
  std::memcpy(properties->uuid.bytes, "emulated GPU", 12);
  properties->uuid.bytes[15] = static_cast<char>(device + 1);
  properties->memoryBusWidth = 5120;
  for (int i = 0; i < 3; ++i) {
    properties->maxThreadsDim[i] = i < 2 ? 1024 : 64;
    properties->maxGridSize[i] = i == 0 ? 0x7fffffff : 65535;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const Config now = config();
  if (device < 0 || device >= now.devices) return cudaErrorInvalidDevice;
  *value = attribute_value(now, attribute);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  if (device < 0 || device >= config().devices) return cudaErrorInvalidDevice;
  std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  const int devices = config().devices;
  if (device < 0 || device >= devices || peer < 0 || peer >= devices) return cudaErrorInvalidDevice;
  *can = device != peer;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return peer < 0 || peer >= config().devices || peer == current_device() ? cudaErrorInvalidDevice : cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int threads,
                                                                   std::size_t shared, unsigned) {
  if (threads <= 0 || threads > 1024) return cudaErrorInvalidValue;
  const int by_threads = 2048 / threads, by_shared = static_cast<int>((164u << 10) / (shared + 1024));
  *blocks = by_threads < by_shared ? by_threads : by_shared;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                          std::size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads, shared, 0);
}

}  // extern "C"
