#include <dlfcn.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "faulty.h"

namespace faulty {

namespace {

// The tables that the cpu plugin fills, as a core would own them.
struct Loaded {
  bp_driver_table driver{};
  bp_device_table device{};
  bp_buffer_table buffer{};
};

Loaded load_cpu() {
  Loaded loaded;
  void* library = dlopen(CPU_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  if (!library) throw sdk::Failure(BP_UNAVAILABLE, dlerror());
  const auto query = reinterpret_cast<bp_plugin_query_fn>(dlsym(library, BP_ENTRY_POINT_NAME));
  if (!query) throw sdk::Failure(BP_UNAVAILABLE, "the cpu plugin has no entry point");
  loaded.driver.size = sizeof(loaded.driver);
  loaded.device.size = sizeof(loaded.device);
  loaded.buffer.size = sizeof(loaded.buffer);
  bp_tables tables{};
  tables.size = sizeof(tables);
  tables.driver = &loaded.driver;
  tables.device = &loaded.device;
  tables.buffer = &loaded.buffer;
  call_cpu([&](bp_context context) { return query(sdk::host, context, &tables); });
  return loaded;
}

// Work in its order, done at the next sync. A failure stays.
struct Stream {
  std::vector<Work> queue;
  std::optional<sdk::Failure> failure;
  std::vector<Work>* recording = nullptr;

  void push(Work work) {
    if (failure) throw *failure;
    (recording ? *recording : queue).push_back(std::move(work));
  }
  void finish(bool lose_errors) {
    const std::vector<Work> work = std::move(queue);
    queue.clear();
    try {
      for (const Work& each : work) each();
    } catch (const sdk::Failure& caught) {
      if (!lose_errors) failure = caught;
    }
    if (failure) throw *failure;
  }
};
Stream& stream_of(bp_stream stream) { return *reinterpret_cast<Stream*>(stream); }

using Graph = std::vector<Work>;

void enqueue(bp_stream stream, Work work) {
  if (!stream) return work();
  stream_of(stream).push(std::move(work));
}

// ---- driver and device

bp_status count(bp_context, std::uint32_t* devices) {
  *devices = 1;
  return BP_OK;
}

void read_options(Device& device, const char* options) {
  sdk::for_each_option(options, [&](std::string_view key, std::string_view value) {
    if (key == "q8") {
      device.rounds_to_q8 = value == "1";
    } else if (key == "crash") {
      device.crashes = value == "1";
    } else if (key == "fault") {
      device.fault = value;
      const bool known = std::any_of(std::begin(kFaults), std::end(kFaults), [&](auto name) { return value == name; });
      sdk::require(known, "there is no such fault");
    } else {
      sdk::unknown_option(key);
    }
  });
}

bp_status open(bp_context context, std::uint32_t index, const bp_open_params* params, bp_device* device) {
  return sdk::guard(context, [&] {
    sdk::require(index == 0, "there is one device");
    auto made = std::make_unique<Device>();
    bp_open_params given = sdk::read_struct(params);
    read_options(*made, given.options);
    given.options = nullptr;
    call_cpu([&](bp_context inner) { return cpu().driver->open(inner, 0, &given, &made->cpu); });
    *device = reinterpret_cast<bp_device>(made.release());
  });
}

void close(bp_device device) {
  cpu().driver->close(self(device).cpu);
  delete &self(device);
}

bp_status caps(bp_device device, bp_context context, bp_caps* caps) {
  return sdk::guard(context, [&] {
    bp_caps own{};
    own.size = sizeof(own);
    call_cpu([&](bp_context inner) { return cpu().device->caps(self(device).cpu, inner, &own); });
    sdk::copy_text(own.name, "0");
    sdk::copy_text(own.description, "The cpu reference with one fault");
    sdk::fill_struct(caps, own);
  });
}

bp_status supports(bp_device device, bp_context context, const bp_op_query* query, bp_support* support) {
  bp_support own{};
  own.size = sizeof(own);
  const bp_status status = cpu().device->supports(self(device).cpu, context, query, &own);
  if (status != BP_OK) return status;
  own.flags |= BP_SUPPORT_CAPTURE_SAFE;
  if (self(device).rounds_to_q8 && query->code == BP_OP_LINEAR) own.quantized_activation_type = BP_TYPE_Q8_0;
  sdk::fill_struct(support, own);
  return BP_OK;
}

bp_status run(bp_device device, bp_stream stream, bp_context context, const bp_op* op) {
  return sdk::guard(context, [&] { enqueue(stream, hold(self(device), *op)); });
}

// ---- buffers

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
void check_range(bp_buffer buffer, std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t size = sdk::host_buffer(buffer).bytes;
  sdk::require(offset <= size && bytes <= size - offset, "a copy reaches beyond its buffer");
}

bp_status upload(bp_device device, bp_stream stream, bp_context context, bp_buffer buffer, std::uint64_t offset,
                 const void* data, std::uint64_t bytes) {
  return sdk::guard(context, [&] {
    check_range(buffer, offset, bytes);
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
    check_range(buffer, offset, bytes);
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
    check_range(to, to_offset, bytes);
    check_range(from, from_offset, bytes);
    enqueue(stream, [=] {
      call_cpu([=](bp_context inner) {
        return cpu().buffer->copy(self(device).cpu, nullptr, inner, to, to_offset, from, from_offset, bytes);
      });
    });
  });
}

// ---- streams and graphs

bp_status create_stream(bp_device, bp_context context, bp_stream* stream) {
  return sdk::guard(context, [&] { *stream = reinterpret_cast<bp_stream>(std::make_unique<Stream>().release()); });
}

bp_status sync(bp_device device, bp_stream stream, bp_context context) {
  return sdk::guard(context, [&] { stream_of(stream).finish(self(device).has("late_error")); });
}

void destroy_stream(bp_device device, bp_stream stream) {
  sync(device, stream, nullptr);
  delete &stream_of(stream);
}

bp_status capture_begin(bp_device device, bp_stream stream, bp_context context) {
  return sdk::guard(context, [&] {
    sdk::require(stream_of(stream).recording == nullptr, "this stream is captured already");
    stream_of(stream).finish(self(device).has("late_error"));
    stream_of(stream).recording = std::make_unique<Graph>().release();
  });
}

bp_status capture_end(bp_device, bp_stream stream, bp_context context, bp_graph* graph) {
  return sdk::guard(context, [&] {
    sdk::require(stream_of(stream).recording != nullptr, "this stream is not captured");
    *graph = reinterpret_cast<bp_graph>(std::exchange(stream_of(stream).recording, nullptr));
  });
}

bp_status launch(bp_device, bp_stream stream, bp_context context, bp_graph graph) {
  return sdk::guard(context, [&] {
    for (const Work& work : *reinterpret_cast<Graph*>(graph)) stream_of(stream).push(work);
  });
}

void destroy_graph(bp_device, bp_graph graph) { delete reinterpret_cast<Graph*>(graph); }

void fill(bp_tables* tables) {
  bp_driver_table driver{};
  driver.abi_minor = BP_ABI_MINOR;
  driver.name = "faulty";
  driver.version = "1";
  driver.count = count;
  driver.open = open;
  driver.close = close;
  sdk::fill_table(tables, &bp_tables::driver, driver);
  bp_device_table device{};
  device.caps = caps;
  device.supports = supports;
  device.run = run;
  sdk::fill_table(tables, &bp_tables::device, device);
  bp_buffer_table buffer{0, alloc, free, upload, download, map, import_host, copy};
  sdk::fill_table(tables, &bp_tables::buffer, buffer);
  bp_stream_table stream{};
  stream.create = create_stream;
  stream.destroy = destroy_stream;
  stream.sync = sync;
  sdk::fill_table(tables, &bp_tables::stream, stream);
  sdk::fill_table(tables, &bp_tables::graph, {0, capture_begin, capture_end, launch, destroy_graph});
}

}  // namespace

// What the cpu plugin says when it fails becomes the text of the failure.
void call_cpu(const std::function<bp_status(bp_context)>& function) {
  const bp_status status = function(nullptr);
  if (status != BP_OK) throw sdk::Failure(status, "the cpu plugin failed with status " + std::to_string(status));
}

const bp_tables& cpu() {
  static Loaded loaded = load_cpu();
  static const bp_tables tables = [] {
    bp_tables t{};
    t.size = sizeof(t);
    t.driver = &loaded.driver;
    t.device = &loaded.device;
    t.buffer = &loaded.buffer;
    return t;
  }();
  return tables;
}

std::byte* address_of(const bp_tensor& tensor) { return sdk::host_buffer(tensor.buffer).data + tensor.offset; }

}  // namespace faulty

extern "C" BP_EXPORT bp_status backplane_plugin_v1(const bp_host* host, bp_context context, bp_tables* tables) {
  faulty::sdk::host = host;
  return faulty::sdk::guard(context, [&] { faulty::fill(tables); });
}
