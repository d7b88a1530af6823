// The buffer table.
#include "stream.h"

namespace faulty {
namespace {

bp_status alloc(bp_device device, bp_context context, std::uint64_t bytes, bp_memory kind, bp_buffer* buffer) {
  return cpu().buffer->alloc(self(device).cpu, context, bytes, kind, buffer);
}
void free(bp_device device, bp_buffer buffer) { cpu().buffer->free(self(device).cpu, buffer); }
bp_status map(bp_device device, bp_context context, bp_buffer buffer, void** address) {
  return cpu().buffer->map(self(device).cpu, context, buffer, address);
}
bp_status import_host(bp_device device, bp_context context, void* address, std::uint64_t bytes, std::uint32_t writable,
                      bp_buffer* buffer) {
  return cpu().buffer->import_host(self(device).cpu, context, address, bytes, writable, buffer);
}

// A range is looked at when the copy is asked for, and copied when its turn comes.
void check_range(const Device& device, bp_stream stream, bp_buffer buffer, std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t size = sdk::host_buffer(buffer).bytes;
  if (offset <= size && bytes <= size - offset) return;
  if (stream && device.has("stuck_capture")) stream_of(stream).get_stuck();
  throw sdk::Failure(BP_INVALID, "a copy reaches beyond its buffer");
}

bp_status upload(bp_device device, bp_stream stream, bp_context context, bp_buffer buffer, std::uint64_t offset,
                 const void* data, std::uint64_t bytes) {
  return sdk::guard(context, [&] {
    check_range(self(device), stream, buffer, offset, bytes);
    enqueue(stream, [=] {
      call_cpu([=](bp_context inner) {
        return cpu().buffer->upload(self(device).cpu, nullptr, inner, buffer, offset, data, bytes);
      });
    });
  });
}

bp_status download(bp_device device, bp_stream stream, bp_context context, bp_buffer buffer, std::uint64_t offset,
                   void* data, std::uint64_t bytes) {
  return sdk::guard(context, [&] {
    check_range(self(device), stream, buffer, offset, bytes);
    enqueue(self(device).has("early_download") ? nullptr : stream, [=] {
      call_cpu([=](bp_context inner) {
        return cpu().buffer->download(self(device).cpu, nullptr, inner, buffer, offset, data, bytes);
      });
    });
  });
}

bp_status copy(bp_device device, bp_stream stream, bp_context context, bp_buffer to, std::uint64_t to_offset,
               bp_buffer from, std::uint64_t from_offset, std::uint64_t bytes) {
  return sdk::guard(context, [&] {
    check_range(self(device), stream, to, to_offset, bytes);
    check_range(self(device), stream, from, from_offset, bytes);
    enqueue(stream, [=] {
      call_cpu([=](bp_context inner) {
        return cpu().buffer->copy(self(device).cpu, nullptr, inner, to, to_offset, from, from_offset, bytes);
      });
    });
  });
}

}  // namespace

void fill_buffer(bp_buffer_table& table) { table = {0, alloc, free, upload, download, map, import_host, copy}; }

}  // namespace faulty
