// Buffers, and what moves bytes between them and the host.
#include <cstdint>
#include <memory>

#include "backends/cuda/device.h"

namespace backplane::cuda {
namespace {

Buffer& buffer_of(bp_buffer buffer) { return static_cast<Buffer&>(plugin::host_buffer(buffer)); }

std::byte* range(bp_buffer handle, std::uint64_t offset, std::uint64_t bytes) {
  const Buffer& buffer = buffer_of(handle);
  plugin::require(offset <= buffer.bytes && bytes <= buffer.bytes - offset, "a range beyond the end of its buffer");
  return buffer.data + offset;
}

void* allocate(std::uint64_t bytes, bp_memory kind) {
  void* data = nullptr;
  switch (kind) {
    case BP_MEMORY_DEVICE:
      check(cudaMalloc(&data, bytes), "cudaMalloc");
      return data;
    case BP_MEMORY_PINNED:
      check(cudaHostAlloc(&data, bytes, cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
      return data;
    case BP_MEMORY_UNIFIED:
      check(cudaMallocManaged(&data, bytes, cudaMemAttachGlobal), "cudaMallocManaged");
      return data;
    default:
      plugin::refuse("memory is the device's, pinned or unified");
  }
}

bp_status alloc(bp_device handle, bp_context context, std::uint64_t bytes, bp_memory kind, bp_buffer* out) {
  return plugin::guard(context, [&] {
    plugin::require(bytes > 0, "an allocation of no bytes");
    device_of(handle).guarded([&] {
      auto buffer = std::make_unique<Buffer>();
      buffer->data = static_cast<std::byte*>(allocate(bytes, kind));
      buffer->bytes = bytes;
      buffer->owned = buffer->writable = true;
      buffer->kind = kind;
      *out = reinterpret_cast<bp_buffer>(static_cast<plugin::HostBuffer*>(buffer.release()));
    });
  });
}

void free(bp_device handle, bp_buffer given) {
  const std::unique_ptr<Buffer> buffer(&buffer_of(given));
  device_of(handle).use_to_destroy();
  if (buffer->kind == BP_MEMORY_PINNED) {
    cudaFreeHost(buffer->data);
  } else if (buffer->kind == BP_MEMORY_IMPORTED) {
    cudaHostUnregister(buffer->host);
  } else {
    cudaFree(buffer->data);
  }
  cudaGetLastError();
}

bp_status upload(bp_device, bp_stream stream, bp_context context, bp_buffer to, std::uint64_t offset, const void* data,
                 std::uint64_t bytes) {
  return on_stream(stream, context, [&](Stream& on) {
    std::byte* target = range(to, offset, bytes);
    check(cudaMemcpyAsync(target, data, bytes, cudaMemcpyDefault, on.handle), "cudaMemcpyAsync");
  });
}

bp_status download(bp_device, bp_stream stream, bp_context context, bp_buffer from, std::uint64_t offset, void* data,
                   std::uint64_t bytes) {
  return on_stream(stream, context, [&](Stream& on) {
    const std::byte* source = range(from, offset, bytes);
    check(cudaMemcpyAsync(data, source, bytes, cudaMemcpyDefault, on.handle), "cudaMemcpyAsync");
  });
}

bp_status copy(bp_device, bp_stream stream, bp_context context, bp_buffer to, std::uint64_t to_offset, bp_buffer from,
               std::uint64_t from_offset, std::uint64_t bytes) {
  return on_stream(stream, context, [&](Stream& on) {
    std::byte* target = range(to, to_offset, bytes);
    const std::byte* source = range(from, from_offset, bytes);
    check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, on.handle), "cudaMemcpyAsync");
  });
}

// Unified memory would have an address, but the host must not touch it while kernels run.
bp_status map(bp_device, bp_context context, bp_buffer buffer, void** address) {
  return plugin::guard(context, [&] {
    if (buffer_of(buffer).kind != BP_MEMORY_PINNED) plugin::refuse("memory of the GPU, which the host can't touch");
    *address = buffer_of(buffer).data;
  });
}

// Memory that a mapped file is read through stays where it is: ops would read a weight over the bus each time.
bp_status import_host(bp_device handle, bp_context context, void* address, std::uint64_t bytes, std::uint32_t writable,
                      bp_buffer* out) {
  return plugin::guard(context, [&] {
    plugin::require(address != nullptr && bytes > 0, "an import of no memory");
    if (writable == 0) plugin::refuse("read-only memory of the host, which is better copied to the GPU once");
    device_of(handle).guarded([&] {
      auto buffer = std::make_unique<Buffer>();
      const cudaError_t error = cudaHostRegister(address, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
      if (error != cudaSuccess && status_of(error) != BP_DEVICE_LOST) {
        cudaGetLastError();
        plugin::refuse(error_text("cudaHostRegister", error));
      }
      check(error, "cudaHostRegister");
      void* data = nullptr;
      const cudaError_t reached = cudaHostGetDevicePointer(&data, address, 0);
      if (reached != cudaSuccess) cudaHostUnregister(address);
      check(reached, "cudaHostGetDevicePointer");
      buffer->host = address;
      buffer->data = static_cast<std::byte*>(data);
      buffer->bytes = bytes;
      buffer->writable = true;
      buffer->kind = BP_MEMORY_IMPORTED;
      *out = reinterpret_cast<bp_buffer>(static_cast<plugin::HostBuffer*>(buffer.release()));
    });
  });
}

}  // namespace

void fill_buffers(bp_buffer_table& table) {
  table.alloc = alloc;
  table.free = free;
  table.upload = upload;
  table.download = download;
  table.map = map;
  table.copy = copy;
  table.import_host = import_host;
}

}  // namespace backplane::cuda
