#include "core/engine/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/log.h"

namespace backplane::engine {

struct EventStream::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Event> events;
  std::uint32_t answers = 1;     // whose end has not been taken
  std::function<void()> cancel;  // until the last one has come
};

EventStream::~EventStream() {
  if (!queue_) return;
  std::function<void()> cancel;
  {
    const std::lock_guard lock(queue_->mutex);
    cancel = std::exchange(queue_->cancel, nullptr);
  }
  if (cancel) cancel();
}

bool EventStream::finished() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->answers == 0;
}

std::optional<Event> EventStream::next() {
  while (!finished()) {
    if (auto event = next_for(std::chrono::hours(1))) return event;
  }
  return std::nullopt;
}

std::optional<Event> EventStream::next_for(std::chrono::milliseconds time) {
  std::unique_lock lock(queue_->mutex);
  queue_->changed.wait_for(lock, time, [&] { return queue_->answers == 0 || !queue_->events.empty(); });
  if (queue_->events.empty()) return std::nullopt;
  Event event = std::move(queue_->events.front());
  queue_->events.pop_front();
  if (event.finish != FinishReason::kNone) --queue_->answers;
  return event;
}

Service::Service(Model& model, ServiceOptions options)
    : engine_(model, std::move(options.engine)), limits_(engine_.limits()), max_requests_(options.max_requests) {
  update_stats(0, 0);
  thread_ = std::thread([this] { loop(); });
}

Service::~Service() {
  cancel_all();
  {
    const std::lock_guard lock(mutex_);
    ending_ = draining_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Limits Service::limits() const { return limits_; }

ServiceStats Service::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void Service::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(work));
  }
  changed_.notify_all();
}

RequestId Service::submit(Request request, EventSink sink, const SubmitOptions& options) {
  allow(request, limits_);  // what is wrong with it is the caller's to hear, here and now
  const std::lock_guard lock(mutex_);
  const char* busy = draining_                ? "the service is shutting down"
                     : open_ >= max_requests_ ? "too many requests"
                                              : nullptr;
  if (busy) {
    ++stats_.refused;
    throw Error(ErrorCode::kCapacity, busy, fmt::format("{} under way", open_), "try again later");
  }
  const RequestId id{next_id_++};
  auto shared = std::make_shared<Request>(std::move(request));  // std::function must be copyable
  inbox_.push_back(
      [this, id, shared, sink = std::move(sink), options] { start(id, std::move(*shared), sink, options); });
  ++open_;
  ++stats_.submitted;
  stats_.open = open_;
  changed_.notify_all();
  return id;
}

EventStream Service::stream(Request request, const SubmitOptions& options) {
  auto queue = std::make_shared<EventStream::Queue>();
  const std::uint32_t answers = queue->answers = request.n;
  auto ended = std::make_shared<std::uint32_t>(0);
  // Held until the stream can be canceled, so that its end can't come before.
  std::unique_lock lock(queue->mutex);
  const RequestId id = submit(
      std::move(request),
      [queue, ended, answers](const Event& event) {
        Event own = event;
        // Copies of an exception share their text across threads, by a count that race detectors don't see.
        if (event.error) own.error.emplace(event.error->code(), event.error->what());
        {
          const std::lock_guard guard(queue->mutex);
          queue->events.push_back(std::move(own));
          if (event.finish != FinishReason::kNone && ++*ended == answers) queue->cancel = nullptr;
        }
        queue->changed.notify_all();
      },
      options);
  queue->cancel = [this, id] { cancel(id); };
  lock.unlock();
  return EventStream(std::move(queue));
}

void Service::cancel(RequestId id) {
  post([this, id] {
    const auto it = engine_id_.find(id);
    if (it != engine_id_.end()) engine_.cancel(it->second);
  });
}

void Service::cancel_all() {
  post([this] {
    for (const auto& [id, engine_id] : engine_id_) engine_.cancel(engine_id);
  });
}

void Service::drain() {
  std::unique_lock lock(mutex_);
  draining_ = true;
  changed_.wait(lock, [&] { return open_ == 0; });
}

// From here on: the service's thread.

void Service::loop() {
  std::vector<std::function<void()>> work;
  while (wait_for_work(work)) {
    for (auto& item : std::exchange(work, {})) item();
    expire();
    if (!engine_.idle()) step();
  }
}

// False when the service ends and nothing is left to do.
bool Service::wait_for_work(std::vector<std::function<void()>>& work) {
  std::unique_lock lock(mutex_);
  if (engine_.idle()) changed_.wait(lock, [&] { return !inbox_.empty() || ending_; });
  work.swap(inbox_);
  return !work.empty() || !engine_.idle() || !ending_;
}

void Service::start(RequestId id, Request request, EventSink sink, const SubmitOptions& options) {
  Entry entry{.id = id, .sink = std::move(sink), .deadline = options.deadline, .answers = request.n};
  const std::size_t prompt = request.prompt.size();
  try {
    const RequestId engine_id = engine_.submit(std::move(request));
    entries_.emplace(engine_id, std::move(entry));
    engine_id_.emplace(id, engine_id);
    const std::lock_guard lock(mutex_);
    stats_.prompt_tokens += prompt;
  } catch (const Error& error) {
    for (std::uint32_t answer = 0; entry.answers > 0; ++answer) {
      Event event{.request = id, .answer = answer, .finish = FinishReason::kError};
      event.error = error;
      give(entry, event);
    }
  }
}

void Service::expire() {
  const auto now = ServiceClock::now();
  for (auto& [engine_id, entry] : entries_) {
    if (entry.failure || !entry.deadline || *entry.deadline > now) continue;
    entry.failure.emplace(ErrorCode::kCapacity, "the deadline has passed", "",
                          "allow more time, or ask for fewer tokens");
    entry.expired = true;
    engine_.cancel(engine_id);
  }
}

void Service::step() {
  const auto start = ServiceClock::now();
  const std::uint64_t before = engine_.steps().steps_run();
  const auto fail_all = [this](const std::exception& failure) {  // a bug of ours; the program and later requests go on
    log(LogLevel::kError, "engine", "a step failed: {}", failure.what());
    for (auto& [engine_id, entry] : entries_) {
      entry.failure.emplace(ErrorCode::kInternal, failure.what());
      engine_.cancel(engine_id);
    }
  };
  std::vector<Event> events;
  try {
    events = engine_.step();
  } catch (const std::exception& failure) {
    fail_all(failure);
  }
  // Before events are given: whoever has the last one may ask at once what its step counted.
  const std::chrono::duration<double> took = ServiceClock::now() - start;
  update_stats(took.count(), engine_.steps().steps_run() - before);
  try {
    for (Event& event : events) deliver(std::move(event));
  } catch (const std::exception& failure) {
    fail_all(failure);
  }
}

void Service::deliver(Event event) {
  const auto it = entries_.find(event.request);
  if (it == entries_.end()) return;
  const RequestId engine_id = event.request;
  Entry& entry = it->second;
  event.request = entry.id;
  if (entry.failure && event.finish == FinishReason::kCanceled) {
    event.finish = FinishReason::kError;
    event.error = entry.failure;
  }
  const bool had_sink = static_cast<bool>(entry.sink);
  give(entry, event);
  if (had_sink && !entry.sink) engine_.cancel(engine_id);
  if (entry.answers > 0) return;
  engine_id_.erase(entry.id);
  entries_.erase(it);
}

// Counts, and forgets a sink that failed.
void Service::give(Entry& entry, const Event& event) noexcept {
  try {
    if (entry.sink) entry.sink(event);
  } catch (const std::exception& failure) {
    log(LogLevel::kWarning, "engine", "a request's receiver failed, so the request ends: {}", failure.what());
    entry.sink = nullptr;
  }
  const std::lock_guard lock(mutex_);
  if (event.token >= 0) ++stats_.generated_tokens;
  if (event.finish == FinishReason::kNone) return;
  if (event.finish == FinishReason::kStop) ++stats_.stopped;
  if (event.finish == FinishReason::kLength) ++stats_.length;
  if (event.finish == FinishReason::kError) ++stats_.failed;
  if (event.finish == FinishReason::kCanceled) ++stats_.canceled;
  if (event.finish == FinishReason::kError && entry.expired) ++stats_.expired;
  if (--entry.answers > 0) return;
  stats_.open = --open_;
  changed_.notify_all();
}

void Service::update_stats(double seconds, std::uint64_t steps) {
  const std::lock_guard lock(mutex_);
  stats_.engine = engine_.stats();
  stats_.pages.clear();
  for (std::uint32_t g = 0; g < engine_.groups(); ++g) stats_.pages.push_back(engine_.pages(g));
  stats_.steps += steps;
  stats_.step_seconds += seconds;
}

}  // namespace backplane::engine
