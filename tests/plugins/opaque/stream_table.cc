// Streams, and the events by which one waits for another.
#include "device.h"

namespace opaque {
namespace {

namespace sdk = backplane::plugin;

// Counts how often it was recorded, and how many of these records were reached.
struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded = 0, reached = 0;

  std::uint64_t latest() {
    const std::lock_guard lock(mutex);
    return recorded;
  }
  void expect(std::uint64_t record) {
    const std::lock_guard lock(mutex);
    recorded = record;
  }
  void reach(std::uint64_t record) {
    const std::lock_guard lock(mutex);
    reached = std::max(reached, record);
    changed.notify_all();
  }
  void wait(std::uint64_t record) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reached >= record; });
  }
};

Event& event_of(bp_event event) { return *reinterpret_cast<Event*>(event); }

bp_status create(bp_device device, bp_context context, bp_stream* stream) {
  return sdk::guard(context, [&] {
    self(device).gate();
    *stream = self(device).give<bp_stream>(std::make_unique<Stream>(self(device).pending));
  });
}

void destroy(bp_device device, bp_stream stream) {
  self(device).forget(stream);
  delete reinterpret_cast<Stream*>(stream);  // waits
  if (stream) --self(device).objects;
}

bp_status sync(bp_device device, bp_stream stream, bp_context context) {
  return sdk::guard(context, [&] {
    const auto fault = self(device).gate(true);
    if (fault) self(device).enqueue(stream, fault, {});
    self(device).sync(stream);
  });
}

bp_status event_create(bp_device device, bp_context context, bp_event* event) {
  return sdk::guard(context, [&] {
    self(device).gate();
    *event = self(device).give<bp_event>(std::make_unique<Event>());
  });
}

void event_destroy(bp_device device, bp_event event) { self(device).take(reinterpret_cast<Event*>(event)); }

bp_status event_record(bp_device device, bp_stream stream, bp_context context, bp_event handle) {
  return sdk::guard(context, [&] {
    self(device).require_no_capture(stream);
    const auto fault = self(device).gate(true);
    if (fault) return self(device).enqueue(stream, fault, {});
    Event& event = event_of(handle);
    const std::uint64_t record = event.latest() + 1;
    self(device).enqueue(
        stream, {}, [&event, record] { event.reach(record); }, true);
    event.expect(record);
  });
}

bp_status event_wait(bp_device device, bp_stream stream, bp_context context, bp_event handle) {
  return sdk::guard(context, [&] {
    self(device).require_no_capture(stream);
    self(device).submit(stream,
                        [&event = event_of(handle), record = event_of(handle).latest()] { event.wait(record); });
  });
}

bp_status event_sync(bp_device device, bp_context context, bp_event handle) {
  return sdk::guard(context, [&] {
    self(device).gate();
    event_of(handle).wait(event_of(handle).latest());
  });
}

}  // namespace

void fill_stream(bp_stream_table& table) {
  table.create = create;
  table.destroy = destroy;
  table.sync = sync;
  table.event_create = event_create;
  table.event_destroy = event_destroy;
  table.event_record = event_record;
  table.event_wait = event_wait;
  table.event_sync = event_sync;
}

}  // namespace opaque
