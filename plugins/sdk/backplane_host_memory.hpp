// Buffers in ordinary memory, for devices that compute where the host does. SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>

#include "backplane_call.hpp"
#include "backplane_tensor.hpp"

namespace backplane::plugin {

// What a bp_buffer of host_memory_table() points to.
struct HostBuffer {
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  bool owned = false;
  bool writable = false;
};

constexpr std::uint32_t kHostAlignment = 64;  // for bp_caps.alignment: a cache line, and the widest vector

inline HostBuffer& host_buffer(bp_buffer buffer) {
  require(buffer != nullptr, "a tensor without a buffer");
  return *reinterpret_cast<HostBuffer*>(buffer);
}

// A type of the ABI for a type of C++; BP_TYPE_NONE for those that stand for several (std::byte, std::uint16_t).
template <class T>
constexpr bp_type type_of() noexcept {
  using Plain = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<Plain, double>) return BP_TYPE_F64;
  if constexpr (std::is_same_v<Plain, float>) return BP_TYPE_F32;
  if constexpr (std::is_same_v<Plain, std::int64_t>) return BP_TYPE_I64;
  if constexpr (std::is_same_v<Plain, std::int32_t>) return BP_TYPE_I32;
  if constexpr (std::is_same_v<Plain, std::uint64_t>) return BP_TYPE_U64;
  return BP_TYPE_NONE;
}

// The address of a tensor's first element, once it is certain that all of it lies inside its buffer, has that type and
// alignment, and may be written unless T is const: data_of<const float>(args.x). Otherwise throws BP_INVALID, or
// BP_UNSUPPORTED for a type that this header doesn't know.
template <class T>
T* data_of(const bp_tensor& tensor) {
  const HostBuffer& buffer = host_buffer(tensor.buffer);
  if (!is_absent(tensor) && type_info(tensor.type).block_elements == 0) {
    refuse("a tensor has the unknown type " + std::to_string(tensor.type));
  }
  require(fits(tensor, buffer.bytes), "a tensor reaches beyond its buffer");
  require(type_of<T>() == BP_TYPE_NONE || type_of<T>() == tensor.type, "a tensor has another type than expected");
  require(std::is_const_v<T> || buffer.writable, "a result would go to memory that is read-only");
  std::byte* address = buffer.data + tensor.offset;
  require(reinterpret_cast<std::uintptr_t>(address) % alignof(T) == 0, "a tensor is not aligned to its elements");
  return reinterpret_cast<T*>(address);
}

// What the machine has. Bytes, 0: unknown.
struct MachineMemory {
  std::uint64_t total = 0, available = 0;
};

inline MachineMemory machine_memory() {
  MachineMemory memory;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/meminfo", "r"), std::fclose);
  if (!file) return memory;
  char line[256];
  while (std::fgets(line, sizeof(line), file.get()) != nullptr) {
    unsigned long long kib = 0;
    if (std::sscanf(line, "MemTotal: %llu kB", &kib) == 1) memory.total = kib * 1024;
    if (std::sscanf(line, "MemAvailable: %llu kB", &kib) == 1) memory.available = kib * 1024;
  }
  return memory;
}

namespace host_memory {

inline std::byte* range(bp_buffer buffer, std::uint64_t offset, std::uint64_t bytes, bool write) {
  HostBuffer& memory = host_buffer(buffer);
  require(offset <= memory.bytes && bytes <= memory.bytes - offset, "a copy reaches beyond its buffer");
  require(!write || memory.writable, "a copy would go to memory that is read-only");
  return memory.data + offset;
}

inline bp_status alloc(bp_device, bp_context context, std::uint64_t bytes, bp_memory kind, bp_buffer* buffer) {
  return guard(context, [&] {
    if (kind != BP_MEMORY_DEVICE && kind != BP_MEMORY_PINNED && kind != BP_MEMORY_UNIFIED) {
      refuse("memory kind " + std::to_string(kind) + " can't be allocated");
    }
    require(bytes > 0, "an allocation of no bytes");
    // The system may promise more than there is, and end the process later: what can't be there is refused here.
    const std::uint64_t total = machine_memory().total;
    if (total != 0 && bytes > total) {
      throw Failure(BP_OUT_OF_MEMORY, std::to_string(bytes) + " bytes on a machine with " + std::to_string(total));
    }
    const Bytes padded = checked_add(bytes, kHostAlignment - 1);
    auto memory = std::make_unique<HostBuffer>();
    if (padded) {
      memory->data = static_cast<std::byte*>(std::aligned_alloc(kHostAlignment, *padded & ~(kHostAlignment - 1ULL)));
    }
    if (!memory->data) throw Failure(BP_OUT_OF_MEMORY, "no memory for " + std::to_string(bytes) + " bytes");
    memory->bytes = bytes;
    memory->owned = memory->writable = true;
    *buffer = reinterpret_cast<bp_buffer>(memory.release());
  });
}

inline void free(bp_device, bp_buffer buffer) {
  const std::unique_ptr<HostBuffer> memory(reinterpret_cast<HostBuffer*>(buffer));
  if (memory && memory->owned) std::free(memory->data);
}

inline bp_status upload(bp_device, bp_stream, bp_context context, bp_buffer buffer, std::uint64_t offset,
                        const void* data, std::uint64_t bytes) {
  return guard(context, [&] {
    std::byte* to = range(buffer, offset, bytes, true);
    if (bytes > 0) std::memcpy(to, data, bytes);
  });
}

inline bp_status download(bp_device, bp_stream, bp_context context, bp_buffer buffer, std::uint64_t offset, void* data,
                          std::uint64_t bytes) {
  return guard(context, [&] {
    const std::byte* from = range(buffer, offset, bytes, false);
    if (bytes > 0) std::memcpy(data, from, bytes);
  });
}

inline bp_status map(bp_device, bp_context context, bp_buffer buffer, void** address) {
  return guard(context, [&] { *address = host_buffer(buffer).data; });
}

inline bp_status import_host(bp_device, bp_context context, void* address, std::uint64_t bytes, std::uint32_t writable,
                             bp_buffer* buffer) {
  return guard(context, [&] {
    require(address != nullptr && bytes > 0, "an import of no memory");
    auto memory = std::make_unique<HostBuffer>(
        HostBuffer{static_cast<std::byte*>(address), bytes, /*owned=*/false, writable != 0});
    *buffer = reinterpret_cast<bp_buffer>(memory.release());
  });
}

inline bp_status copy(bp_device, bp_stream, bp_context context, bp_buffer to, std::uint64_t to_offset, bp_buffer from,
                      std::uint64_t from_offset, std::uint64_t bytes) {
  return guard(context, [&] {
    std::byte* target = range(to, to_offset, bytes, true);
    const std::byte* source = range(from, from_offset, bytes, false);
    if (bytes > 0) std::memmove(target, source, bytes);
  });
}

}  // namespace host_memory

// All buffer functions. A device that uses them has the capabilities BP_CAP_HOST_VISIBLE and BP_CAP_UNIFIED.
inline bp_buffer_table host_memory_table() noexcept {
  bp_buffer_table table{};
  table.alloc = host_memory::alloc;
  table.free = host_memory::free;
  table.upload = host_memory::upload;
  table.download = host_memory::download;
  table.map = host_memory::map;
  table.import_host = host_memory::import_host;
  table.copy = host_memory::copy;
  return table;
}

}  // namespace backplane::plugin
