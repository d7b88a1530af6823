// Bugs in who runs when, and with how much room.
#include <algorithm>
#include <map>
#include <thread>

#include "tests/support/expect_error.h"
#include "tests/unit/known_bugs/known_bugs.h"

namespace backplane {
namespace {

using engine::RequestId;

// https://github.com/ikawrakow/ik_llama.cpp/issues/1929: a cancellation ended the neighbor too;
// https://github.com/ggml-org/llama.cpp/issues/13262: it came too late or never.
TEST_F(KnownBugs, CancelingHarmsNoNeighbor) {
  const auto model = load(3);
  engine::Engine engine(*model, options());
  const engine::Request asked[] = {request("a first neighbor", 60), request("and a second, longer one", 60)};
  std::map<RequestId, Told> told;
  const auto step = [&] {
    for (const engine::Event& event : engine.step()) add(told[event.request], event);
  };
  const RequestId neighbors[] = {engine.submit(asked[0]), engine.submit(asked[1])};
  for (int i = 0; i < 4; ++i) step();
  enum State { kQueued, kPrefilling, kDecoding };
  for (const State state : {kQueued, kPrefilling, kDecoding}) {
    SCOPED_TRACE(state);
    const RequestId victim = engine.submit(request(std::string(70, static_cast<char>('a' + state)), 50));
    for (int i = 0; i < (state == kQueued ? 0 : state == kPrefilling ? 1 : 8); ++i) step();
    EXPECT_EQ(engine.running(), state == kQueued ? 2u : 3u);
    EXPECT_EQ(told[victim].ids.empty(), state != kDecoding);
    const std::uint32_t held = engine.pages(0).held;
    EXPECT_TRUE(engine.cancel(victim));
    EXPECT_EQ(engine.running(), 2u);
    EXPECT_EQ(engine.pages(0).held < held, state != kQueued) << "its pages are free at once";
    step();
    EXPECT_EQ(told[victim].finish, engine::FinishReason::kCanceled);
    EXPECT_EQ(engine.fault(), "");
  }
  EXPECT_EQ(engine.requests(), 2u) << "the neighbors saw all of it";
  while (!engine.idle()) step();
  for (int i = 0; i < 2; ++i) expect_same(told[neighbors[i]], alone(asked[i]));
  EXPECT_EQ(engine.pages(0).held, 0u);
}

// https://github.com/ggml-org/llama.cpp/issues/19774: what is longer than the context was an error of one kind or
// another; https://github.com/vllm-project/vllm/issues/42474: max_tokens was not held to what is left.
TEST_F(KnownBugs, TheContextEndsExactly) {
  const auto model = load();
  engine::Service service(*model, {.engine = options()});
  const std::string text(kContext + 1, 'x');
  const engine::Request others = request("somebody else", 40);
  std::vector<engine::EventStream> running;
  for (int time = 0; time < 3; ++time) {  // the same under load
    for (const std::uint32_t length : {kContext - 1, kContext}) {
      const Told told = read(service.stream(request(text.substr(0, length), 500)));
      // The last token is chosen from a full context and needs no place in it.
      EXPECT_EQ(told.ids.size(), kContext + 1 - length);
      EXPECT_EQ(told.finish, engine::FinishReason::kLength);
    }
    EXPECT_ERROR(service.stream(request(text, 1)), ErrorCode::kCapacity, "longer than the context of 256");
    running.push_back(service.stream(others));
    running.push_back(service.stream(others));
  }
  EXPECT_EQ(read(service.stream(request("x", 500))).ids.size(), kContext);
  const engine::Generation want = alone(others);
  for (engine::EventStream& stream : running) expect_same(read(std::move(stream)), want);
}

// https://github.com/vllm-project/vllm/issues/39734: a prompt within the context that no cache could hold waited for
// ever, and all others behind it.
TEST_F(KnownBugs, APromptThatCanNeverRunIsRefusedAndBlocksNobody) {
  const auto model = load(4, 64);
  engine::Service service(*model, {.engine = options()});
  const auto most = static_cast<std::uint32_t>(service.limits().kv_longest);
  ASSERT_GE(most, 64u);
  ASSERT_LT(most, kContext - 50);
  engine::EventStream before = service.stream(request("before", 30));
  for (const std::uint32_t length : {most + 1, most + 50, kContext}) {
    engine::Request asked = request(std::string(length, 'x'), 1);
    EXPECT_ERROR(service.stream(asked), ErrorCode::kCapacity, "KV cache");
    asked.max_tokens.reset();  // as many as fit
    EXPECT_ERROR(service.stream(asked), ErrorCode::kCapacity, "KV cache");
  }
  EXPECT_ERROR(service.stream(request(std::string(most, 'x'), 2)), ErrorCode::kCapacity, "at most 1 token");
  engine::EventStream largest = service.stream(request(std::string(most, 'x'), 1));
  engine::EventStream after = service.stream(request("after", 30));
  expect_same(read(std::move(before)), alone(request("before", 30)));
  expect_same(read(std::move(largest)), alone(request(std::string(most, 'x'), 1)));
  expect_same(read(std::move(after)), alone(request("after", 30)));
}

// https://github.com/sgl-project/sglang/issues/11970: pages were lost, a few with each burst of requests.
TEST_F(KnownBugs, NoPageIsLostAfter256AtOnce) {
  const auto model = load(16, kContext);
  engine::EngineOptions crowded = options();
  crowded.headroom = 0;
  engine::Service service(*model, {.engine = crowded});
  std::vector<std::thread> threads;
  std::atomic<int> ended = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < 256; i += 4) {
        engine::Request asked = request("shared beginning, " + std::string(1 + i % 40, static_cast<char>('a' + i % 26)),
                                        static_cast<std::uint32_t>(1 + i % 12));
        if (i % 5 == 0) asked.stop = {"a", "e"};
        if (i % 7 == 0) asked.n = 3;
        if (i % 9 == 0) asked.prompt_logprobs = 1;
        const RequestId id = service.submit(
            asked, [&](const engine::Event& event) { ended += event.finish != engine::FinishReason::kNone; });
        if (i % 6 == 0) service.cancel(id);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  service.drain();
  EXPECT_EQ(ended, 256 + 2 * 37) << "each answer has one end";
  service.between_steps([](engine::Engine& engine) {
    EXPECT_TRUE(engine.idle());
    const kv::PoolCounts pages = engine.pages(0);
    EXPECT_EQ(pages.held, 0u);
    EXPECT_EQ(pages.free + pages.cached, pages.total);
    EXPECT_EQ(engine.fault(), "");
    EXPECT_GT(engine.stats().preempted, 0u) << "the pool was never full";
  });
}

}  // namespace
}  // namespace backplane
