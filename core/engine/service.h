// An engine with a thread of its own: requests come from any thread, events go to their sinks.
//
//   engine::Service service(*model, {.engine = {.tokenizer = tokenizer}});
//   engine::EventStream events = service.stream(request);
//   while (auto event = events.next()) std::cout << event->text;
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/model.h"
#include "core/engine/request.h"

namespace backplane::engine {

using ServiceClock = std::chrono::steady_clock;

struct ServiceOptions {
  EngineOptions engine = {};
  std::size_t max_requests = 1024;  // running and waiting; submit refuses more
};

struct SubmitOptions {
  // A request that isn't finished by then ends with an error event of code kCapacity. Looked at between steps.
  std::optional<ServiceClock::time_point> deadline = {};
};

// Since the start, but for `open`, `engine` and `pages`.
struct ServiceStats {
  std::uint64_t open = 0;             // requests that have not ended
  EngineStats engine;                 // now, and its counts since the start
  std::vector<kv::PoolCounts> pages;  // by group, now
  std::uint64_t submitted = 0;
  std::uint64_t refused = 0;                                        // by submit
  std::uint64_t stopped = 0, length = 0, failed = 0, canceled = 0;  // answers
  std::uint64_t expired = 0;                                        // by their deadline; they are among the failed
  std::uint64_t prompt_tokens = 0, generated_tokens = 0;
  std::uint64_t steps = 0;
  double step_seconds = 0;  // in the engine, sampling included
};

// Called on the service's thread, in order, for each event of a request, until each of its answers has a finish reason.
// It must not block, and what it throws ends its request.
using EventSink = std::function<void(const Event&)>;

// One request's events, to be taken by any one thread. Destroying it cancels the request.
class EventStream {
 public:
  EventStream(EventStream&&) = default;
  EventStream& operator=(EventStream&&) = default;
  ~EventStream();

  // Waits for the next one; nothing after the last, which is the end of the last answer.
  std::optional<Event> next();
  // Nothing when none came in time.
  std::optional<Event> next_for(std::chrono::milliseconds time);
  bool finished() const;  // the last one has been taken

 private:
  friend class Service;
  struct Queue;
  explicit EventStream(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}
  std::shared_ptr<Queue> queue_;
};

// All calls from any thread, but not from a sink, where only submit and cancel may be called. The model must outlive it
// and is used by its thread alone.
class Service {
 public:
  // Throws as Engine does.
  explicit Service(Model& model, ServiceOptions options = {});
  // Cancels what is under way; its sinks get their last event.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Throws what Engine::submit throws; kCapacity when there are max_requests, or while draining: try again later.
  RequestId submit(Request request, EventSink sink, const SubmitOptions& options = {});
  EventStream stream(Request request, const SubmitOptions& options = {});
  // Without effect on one that has ended.
  void cancel(RequestId id);

  // From here on submit refuses; returns when all that was accepted has ended.
  void drain();
  void cancel_all();
  ServiceStats stats() const;
  Limits limits() const;

  // Runs `work` on the service's thread between two steps, and returns or throws what it does. For what needs the
  // engine or the model to stand still: moving the model to another device, looking at the records of steps.
  template <class Work>
  auto between_steps(Work&& work) -> decltype(work(std::declval<Engine&>()));

 private:
  struct Entry {
    RequestId id;  // what submit gave
    EventSink sink;
    std::optional<ServiceClock::time_point> deadline;
    std::uint32_t answers = 1;          // that have not ended
    std::optional<Error> failure = {};  // why we canceled it
    bool expired = false;
  };

  void post(std::function<void()> work);
  void loop();
  bool wait_for_work(std::vector<std::function<void()>>& work);
  void start(RequestId id, Request request, EventSink sink, const SubmitOptions& options);
  void expire();
  void step();
  void deliver(Event event);
  void give(Entry& entry, const Event& event) noexcept;
  void update_stats(double seconds, std::uint64_t steps);

  // The service's thread only.
  Engine engine_;
  std::unordered_map<RequestId, Entry> entries_;        // by the engine's number
  std::unordered_map<RequestId, RequestId> engine_id_;  // by the number that submit gave

  const Limits limits_;
  const std::size_t max_requests_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> inbox_;
  std::size_t open_ = 0;  // requests that have not ended
  bool draining_ = false, ending_ = false;
  std::uint64_t next_id_ = 0;
  ServiceStats stats_;
  std::thread thread_;  // last: it uses the others
};

template <class Work>
auto Service::between_steps(Work&& work) -> decltype(work(std::declval<Engine&>())) {
  using Result = decltype(work(std::declval<Engine&>()));
  std::packaged_task<Result()> task([&] { return work(engine_); });
  std::future<Result> result = task.get_future();
  post([&task] { task(); });
  return result.get();
}

}  // namespace backplane::engine
