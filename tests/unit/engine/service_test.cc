// Requests from many threads: each gets what it would get alone, whatever the others do.
#include "core/engine/service.h"

#include <gtest/gtest.h>

#include <future>
#include <semaphore>

#include "tests/support/expect_error.h"
#include "tests/unit/engine/engine_fixture.h"

namespace backplane::engine {
namespace {

Request greedy(std::size_t prompt, std::uint32_t seed, std::uint32_t max_tokens) {
  Request request;
  request.prompt = some_tokens(prompt, seed);
  request.sampling.temperature = 0;
  request.max_tokens = max_tokens;
  return request;
}

Outcome read_all(EventStream& stream) {
  Outcomes out;
  std::optional<RequestId> id;
  while (auto event = stream.next()) {
    id = event->request;
    collect(out, {*event});
  }
  return id ? out[*id] : Outcome{};
}

TEST(Service, GivesEachThreadItsOwnTokens) {
  FakeModel model;
  const FakeModel oracle;
  Service service(model, {.engine = {.max_sequences = 5}});
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint32_t i = 0; i < 25; ++i) {
        const std::uint32_t seed = 100 * t + i;
        const Request request = greedy(1 + seed % 17, seed, 1 + seed % 9);
        EventStream stream = service.stream(request);
        const Outcome outcome = read_all(stream);
        EXPECT_EQ(outcome.ids, oracle.greedy(request.prompt, *request.max_tokens));
        EXPECT_EQ(outcome.finish, FinishReason::kLength);
        EXPECT_TRUE(stream.finished());
        EXPECT_FALSE(stream.next());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  service.drain();
  const ServiceStats stats = service.between_steps([&](Engine&) { return service.stats(); });
  EXPECT_EQ(stats.submitted, 100u);
  EXPECT_EQ(stats.length, 100u);
  EXPECT_EQ(stats.failed + stats.canceled + stats.stopped + stats.refused, 0u);
  EXPECT_GT(stats.steps, 0u);
  EXPECT_TRUE(service.between_steps([](Engine& engine) { return engine.idle(); }));
}

TEST(Service, CountsAStepBeforeItGivesItsEvents) {
  FakeModel model;
  Service service(model);
  std::promise<std::uint64_t> steps;
  service.submit(greedy(3, 1, 4), [&](const Event& event) {
    if (event.finish != FinishReason::kNone) steps.set_value(service.stats().steps);
  });
  EXPECT_EQ(steps.get_future().get(), 4u);
}

TEST(Service, CancelsAStreamThatIsDropped) {
  FakeModel model({.max_context = 4000, .pages = {2000}});
  Service service(model);
  {
    EventStream stream = service.stream(greedy(3, 1, 3000));
    EXPECT_TRUE(stream.next());
  }
  service.drain();
  EXPECT_EQ(service.stats().canceled, 1u);
}

// Holds the model's steps until it is told to go on.
struct Gate {
  std::binary_semaphore entered{0}, leave{0};
  std::atomic<bool> armed{true};
  void operator()(const sched::Step&) {
    if (!armed.exchange(false)) return;
    entered.release();
    leave.acquire();
  }
};

TEST(Service, RefusesWhatIsTooMuch) {
  FakeModel model;
  Gate gate;
  model.before_step = [&](const sched::Step& step) { gate(step); };
  Service service(model, {.max_requests = 2});
  EventStream first = service.stream(greedy(3, 1, 4));
  gate.entered.acquire();
  EventStream second = service.stream(greedy(3, 2, 4));
  EXPECT_ERROR(service.stream(greedy(3, 3, 4)), ErrorCode::kCapacity, "too many requests");
  EXPECT_EQ(service.stats().refused, 1u);
  gate.leave.release();
  EXPECT_EQ(read_all(first).ids.size(), 4u);
  EXPECT_EQ(read_all(second).ids.size(), 4u);
  EXPECT_EQ(read_all(*std::make_unique<EventStream>(service.stream(greedy(3, 4, 4)))).ids.size(), 4u);
}

TEST(Service, RefusesBadRequestsAtOnce) {
  FakeModel model;
  Service service(model);
  Request request = greedy(3, 1, 4);
  request.prompt.clear();
  EXPECT_ERROR(service.stream(request), ErrorCode::kUsage, "prompt");
  EXPECT_EQ(service.stats().submitted, 0u);
}

TEST(Service, EndsARequestAtItsDeadline) {
  FakeModel model;
  Service service(model);
  EventStream late = service.stream(greedy(3, 1, 4), {.deadline = ServiceClock::now() - std::chrono::seconds(1)});
  EventStream good = service.stream(greedy(3, 1, 4), {.deadline = ServiceClock::now() + std::chrono::hours(1)});
  const Outcome outcome = read_all(late);
  EXPECT_EQ(outcome.finish, FinishReason::kError);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code(), ErrorCode::kCapacity);
  EXPECT_EQ(read_all(good).finish, FinishReason::kLength);
  service.drain();
  EXPECT_EQ(service.stats().expired, 1u);
}

TEST(Service, DrainsAndThenRefuses) {
  FakeModel model;
  Service service(model);
  std::atomic<int> ended = 0;
  for (std::uint32_t i = 0; i < 20; ++i) {
    service.submit(greedy(5, i, 6), [&](const Event& event) { ended += event.finish == FinishReason::kLength; });
  }
  service.drain();
  EXPECT_EQ(ended, 20);
  EXPECT_ERROR(service.stream(greedy(3, 1, 1)), ErrorCode::kCapacity, "shutting down");
}

TEST(Service, TellsSinksOfItsEnd) {
  FakeModel model({.max_context = 4000, .pages = {2000}});
  std::atomic<int> canceled = 0;
  {
    Service service(model);
    for (std::uint32_t i = 0; i < 5; ++i) {
      service.submit(greedy(3, i, 1000),
                     [&](const Event& event) { canceled += event.finish == FinishReason::kCanceled; });
    }
  }
  EXPECT_EQ(canceled, 5);
}

TEST(Service, ASinkThatThrowsEndsItsRequestOnly) {
  FakeModel model;
  const FakeModel oracle;
  Service service(model);
  int calls = 0;
  service.submit(greedy(3, 1, 20), [&](const Event&) {
    ++calls;
    throw std::runtime_error("full");
  });
  EventStream other = service.stream(greedy(4, 2, 9));
  EXPECT_EQ(read_all(other).ids, oracle.greedy(some_tokens(4, 2), 9));
  service.drain();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(service.stats().canceled, 1u);
}

TEST(Service, GivesAllAnswersToOnePrompt) {
  FakeModel model;
  Service service(model);
  Request request = greedy(3, 1, 6);
  request.n = 3;
  request.sampling.temperature = 1;
  EventStream stream = service.stream(request);
  std::map<std::uint32_t, int> tokens, ends;
  while (auto event = stream.next()) {
    tokens[event->answer] += event->token >= 0;
    ends[event->answer] += event->finish == FinishReason::kLength;
  }
  const std::map<std::uint32_t, int> six{{0, 6}, {1, 6}, {2, 6}}, one{{0, 1}, {1, 1}, {2, 1}};
  EXPECT_EQ(tokens, six);
  EXPECT_EQ(ends, one);
  service.drain();
  EXPECT_EQ(service.stats().length, 3u);
  EXPECT_EQ(service.stats().open, 0u);
}

TEST(Service, GoesOnAfterABugInAStep) {
  FakeModel model;
  std::atomic<bool> broken = true;
  model.before_step = [&](const sched::Step&) {
    if (broken.exchange(false)) throw std::logic_error("a bug");
  };
  Service service(model);
  EventStream first = service.stream(greedy(3, 1, 4));
  const Outcome outcome = read_all(first);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code(), ErrorCode::kInternal);
  EventStream second = service.stream(greedy(3, 1, 4));
  EXPECT_EQ(read_all(second).finish, FinishReason::kLength);
}

}  // namespace
}  // namespace backplane::engine
