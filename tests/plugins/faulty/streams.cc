// The stream and graph tables.
#include <utility>

#include "stream.h"

namespace faulty {

Stream::Stream(bool held, bool loses_errors) : held_(held), loses_errors_(loses_errors), thread_([this] { work(); }) {}

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Stream::push(Work work, bool always) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ && !always) throw *failure_;
    if (recorded_) return recorded_->push_back(std::move(work));
    items_.push_back({std::move(work), always});
  }
  changed_.notify_all();
}

void Stream::sync() {
  std::unique_lock lock(mutex_);
  ++syncs_;
  released_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return items_.empty() && !busy_; });
  released_ = false;
  if (failure_) throw *failure_;
}

void Stream::let_go() {
  const std::lock_guard lock(mutex_);
  released_ = true;
  changed_.notify_all();
}

void Stream::begin_recording() {
  const std::lock_guard lock(mutex_);
  sdk::require(!recorded_, "this stream is recorded already");
  if (failure_) throw *failure_;
  recorded_.emplace();
}

std::vector<Work> Stream::end_recording() {
  const std::lock_guard lock(mutex_);
  sdk::require(recorded_.has_value(), "this stream is not recorded");
  if (stuck_) throw sdk::Failure(BP_INTERNAL, "the recording failed");
  std::vector<Work> work = std::move(*recorded_);
  recorded_.reset();
  return work;
}

void Stream::get_stuck() {
  const std::lock_guard lock(mutex_);
  stuck_ = recorded_.has_value();
}

std::uint64_t Stream::syncs() {
  const std::lock_guard lock(mutex_);
  return syncs_;
}

void Stream::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || (!items_.empty() && (!held_ || released_)); });
    if (items_.empty()) return;
    Item item = std::move(items_.front());
    items_.pop_front();
    const bool skip = failure_ && !item.always;  // it would compute on garbage
    busy_ = true;
    lock.unlock();
    std::optional<sdk::Failure> failure;
    try {
      if (!skip) item.work();
    } catch (const sdk::Failure& caught) {
      failure = caught;
    } catch (const std::exception& caught) {
      failure = sdk::Failure(BP_INTERNAL, caught.what());
    }
    item.work = nullptr;
    lock.lock();
    busy_ = false;
    if (failure && !failure_ && !loses_errors_) failure_ = failure;
    changed_.notify_all();
  }
}

void enqueue(bp_stream stream, Work work) {
  if (!stream) return work();
  stream_of(stream).push(std::move(work));
}

namespace {

// A point in a stream: how often it was recorded, and how many of these points were passed.
struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded = 0, passed = 0;
  std::weak_ptr<Stream> stream;  // of the last record

  void pass() {
    const std::lock_guard lock(mutex);
    ++passed;
    changed.notify_all();
  }
  void wait_for(std::uint64_t point) {
    std::unique_lock lock(mutex);
    if (const auto on = stream.lock()) on->let_go();
    changed.wait(lock, [&] { return passed >= point; });
  }
  std::uint64_t last() {
    const std::lock_guard lock(mutex);
    return recorded;
  }
};
using EventPointer = std::shared_ptr<Event>;

EventPointer& event_of(bp_event event) { return *reinterpret_cast<EventPointer*>(event); }

bp_status create(bp_device device, bp_context context, bp_stream* stream) {
  return sdk::guard(context, [&] {
    const Device& d = self(device);
    auto made = std::make_shared<Stream>(d.has("early_download") || d.has("lost_event"), d.has("late_error"));
    *stream = reinterpret_cast<bp_stream>(new std::shared_ptr<Stream>(std::move(made)));
  });
}

void destroy(bp_device, bp_stream stream) { delete reinterpret_cast<std::shared_ptr<Stream>*>(stream); }

bp_status sync(bp_device, bp_stream stream, bp_context context) {
  return sdk::guard(context, [&] { stream_of(stream).sync(); });
}

bp_status event_create(bp_device, bp_context context, bp_event* event) {
  return sdk::guard(context, [&] { *event = reinterpret_cast<bp_event>(new EventPointer(std::make_shared<Event>())); });
}

void event_destroy(bp_device, bp_event event) { delete reinterpret_cast<EventPointer*>(event); }

bp_status event_record(bp_device, bp_stream stream, bp_context context, bp_event handle) {
  return sdk::guard(context, [&] {
    const EventPointer event = event_of(handle);
    {
      const std::lock_guard lock(event->mutex);
      ++event->recorded;
      event->stream = *reinterpret_cast<std::shared_ptr<Stream>*>(stream);
    }
    stream_of(stream).push([event] { event->pass(); }, true);
  });
}

bp_status event_wait(bp_device device, bp_stream stream, bp_context context, bp_event handle) {
  return sdk::guard(context, [&] {
    if (self(device).has("lost_event")) return;
    const EventPointer event = event_of(handle);
    stream_of(stream).push([event, point = event->last()] { event->wait_for(point); });
  });
}

bp_status event_sync(bp_device, bp_context context, bp_event handle) {
  return sdk::guard(context, [&] { event_of(handle)->wait_for(event_of(handle)->last()); });
}

// ---- graphs

struct Graph {
  std::vector<Work> work;
  std::optional<std::uint64_t> launched_after;  // so many syncs of the stream
};

bp_status capture_begin(bp_device, bp_stream stream, bp_context context) {
  return sdk::guard(context, [&] { stream_of(stream).begin_recording(); });
}

bp_status capture_end(bp_device, bp_stream stream, bp_context context, bp_graph* graph) {
  return sdk::guard(context, [&] {
    auto made = std::make_unique<Graph>();
    made->work = stream_of(stream).end_recording();
    *graph = reinterpret_cast<bp_graph>(made.release());
  });
}

bp_status launch(bp_device device, bp_stream stream, bp_context context, bp_graph handle) {
  return sdk::guard(context, [&] {
    Graph& graph = *reinterpret_cast<Graph*>(handle);
    const std::uint64_t syncs = stream_of(stream).syncs();
    if (std::exchange(graph.launched_after, syncs) == syncs && self(device).has("launch_once")) return;
    for (const Work& work : graph.work) stream_of(stream).push(work);
  });
}

void destroy_graph(bp_device, bp_graph graph) { delete reinterpret_cast<Graph*>(graph); }

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

void fill_graph(bp_graph_table& table) { table = {0, capture_begin, capture_end, launch, destroy_graph}; }

}  // namespace faulty
