// Buffers, and what moves bytes between them and the host.
#include "device.h"

namespace opaque {
namespace {

namespace sdk = backplane::plugin;

bp_status alloc(bp_device device, bp_context context, std::uint64_t bytes, bp_memory kind, bp_buffer* buffer) {
  return sdk::guard(context, [&] {
    self(device).gate();
    if (kind != BP_MEMORY_DEVICE) sdk::refuse("there is only device memory");
    *buffer = self(device).options.lie == "null_handle"
                  ? nullptr
                  : self(device).memory.alloc(bytes, self(device).options.visible);
  });
}

void free(bp_device device, bp_buffer buffer) {
  self(device).note_end_of_use();
  self(device).memory.free(buffer);
}

bp_status upload(bp_device handle, bp_stream stream, bp_context context, bp_buffer buffer, std::uint64_t offset,
                 const void* data, std::uint64_t bytes) {
  return sdk::guard(context, [&] {
    Device& device = self(handle);
    device.submit(stream, [=, &device] { device.memory.at(buffer)->write(offset, data, bytes); });
  });
}

bp_status download(bp_device handle, bp_stream stream, bp_context context, bp_buffer buffer, std::uint64_t offset,
                   void* data, std::uint64_t bytes) {
  return sdk::guard(context, [&] {
    Device& device = self(handle);
    device.submit(stream, [=, &device] { device.memory.at(buffer)->read(offset, data, bytes); });
  });
}

bp_status copy(bp_device handle, bp_stream stream, bp_context context, bp_buffer to, std::uint64_t to_offset,
               bp_buffer from, std::uint64_t from_offset, std::uint64_t bytes) {
  return sdk::guard(context, [&] {
    Device& device = self(handle);
    if (device.options.no_copy) sdk::refuse("copies nothing");
    device.submit(stream, [=, &device] {
      const auto source = device.memory.at(from);
      sdk::require(bytes <= source->size(), "a copy beyond the end of opaque memory");
      std::vector<std::byte> moved(bytes);
      source->read(from_offset, moved.data(), bytes);
      device.memory.at(to)->write(to_offset, moved.data(), bytes);
    });
  });
}

bp_status map(bp_device device, bp_context context, bp_buffer buffer, void** address) {
  return sdk::guard(context, [&] {
    if (self(device).options.no_map) sdk::refuse("maps nothing");
    self(device).gate();
    *address = self(device).memory.at(buffer)->host();
    if (!*address) sdk::refuse("memory that the host can't touch");
  });
}

bp_status import_host(bp_device device, bp_context context, void* address, std::uint64_t bytes, std::uint32_t,
                      bp_buffer* buffer) {
  return sdk::guard(context, [&] {
    if (!self(device).options.visible || self(device).options.no_import) sdk::refuse("can't touch memory of the host");
    self(device).gate();
    *buffer = self(device).memory.import(static_cast<std::byte*>(address), bytes);
  });
}

}  // namespace

void fill_buffers(bp_buffer_table& table) {
  table.alloc = alloc;
  table.free = free;
  table.upload = upload;
  table.download = download;
  table.map = map;
  table.import_host = import_host;
  table.copy = copy;
}

}  // namespace opaque
