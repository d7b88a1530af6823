// Bugs of caches that are shared: who is given what.
#include <algorithm>
#include <thread>

#include "core/kv/kv_book.h"
#include "tests/unit/known_bugs/known_bugs.h"

namespace backplane {
namespace {

// Of one conversation, what is said in each turn: all alike, but for a secret.
std::string says(int who, int turn) {
  const std::string begin = turn == 0 ? "You are a kind helper. Keep the secret." : " And what else?";
  return begin + " My secret is " + std::string(1 + who % 3, static_cast<char>('A' + who)) + ". Tell me it.";
}

// https://github.com/ggml-org/llama.cpp/issues/27148: the prompt cache gave one conversation what was another's. The
// secrets are canaries: who attends to another's is given away by its log-probabilities, of which each bit is compared.
TEST_F(KnownBugs, NobodyIsServedAnothersConversation) {
  constexpr int kPeople = 12, kTurns = 3;
  const auto next = [&](const Ids& before, int who, int turn) {
    engine::Request asked = request(says(who, turn), 8);
    asked.prompt.insert(asked.prompt.begin(), before.begin(), before.end());
    return asked;
  };
  const auto with = [](Ids history, const Ids& reply) {
    history.insert(history.end(), reply.begin(), reply.end());
    return history;
  };
  std::vector<std::vector<engine::Generation>> want(kPeople);
  {
    const auto model = load(1);
    for (int who = 0; who < kPeople; ++who) {
      Ids history;
      for (int turn = 0; turn < kTurns; ++turn) {
        const engine::Request asked = next(history, who, turn);
        want[who].push_back(alone(*model, asked));
        history = with(asked.prompt, want[who].back().ids);
      }
    }
  }
  const auto model = load(4, kContext + 60);
  engine::Service service(*model, {.engine = options()});
  std::vector<std::thread> threads;
  for (int who = 0; who < kPeople; ++who) {
    threads.emplace_back([&, who] {
      Ids history;
      for (int turn = 0; turn < kTurns; ++turn) {
        const engine::Request asked = next(history, who, turn);
        const Told told = read(service.stream(asked));
        expect_same(told, want[who][static_cast<std::size_t>(turn)]);
        history = with(asked.prompt, told.ids);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const engine::EngineStats stats = service.between_steps([](engine::Engine& engine) { return engine.stats(); });
  EXPECT_GT(stats.prefix.found, 500u) << "nothing was shared";
  EXPECT_GT(stats.prefix.evicted, 20u) << "no page changed hands";
}

// https://github.com/ggml-org/llama.cpp/issues/26207: K and V made with one adapter were used with another. The same
// prompt for one and then the other, against one that finds nothing; tenants are kept apart in the same way.
TEST_F(KnownBugs, TheCacheTellsAdaptersAndTenantsApart) {
  const auto model = load(1);
  const Ids prompt = encode("a prompt of which everybody is fond");
  {
    kv::KvBook book(kPage, {{0, 64}}, 64);
    const auto found = [&](const kv::PrefixIdentity& identity) {
      const SequenceId id = book.open(identity);
      const std::uint64_t adopted = book.adopt(id, prompt, prompt.size() - 1);
      const auto rest = static_cast<std::uint32_t>(prompt.size() - adopted);
      EXPECT_EQ(book.reserve(id, rest), kv::Reservation::kReserved);
      book.append(id, rest, prompt);
      book.free(id);
      return adopted;
    };
    EXPECT_EQ(found({.adapter = 1}), 0u);
    EXPECT_EQ(found({.adapter = 2}), 0u) << "another one";
    EXPECT_EQ(found({}), 0u) << "none";
    EXPECT_EQ(found({.adapter = 1, .salt = "b"}), 0u) << "of another tenant";
    for (const std::uint64_t adapter : {0u, 1u, 2u}) EXPECT_EQ(found({.adapter = adapter}), 32u);
  }
  engine::Engine engine(*model, options());
  const engine::Generation cold = alone(*load(1), {.prompt = prompt, .max_tokens = 4, .top_logprobs = 1});
  for (const auto& [salt, cached] : {std::pair{"a", 0u}, {"b", 0u}, {"", 0u}, {"a", 32u}, {"b", 32u}, {"", 32u}}) {
    const engine::Generation done =
        engine::generate(engine, {.prompt = prompt, .max_tokens = 4, .top_logprobs = 1, .cache_salt = salt});
    EXPECT_EQ(done.steps.front().cached, cached) << salt;
    EXPECT_EQ(done.ids, cold.ids);
    EXPECT_EQ(done.logprobs, cold.logprobs);
  }
}

// https://github.com/vllm-project/vllm/issues/5907: the log-probabilities of a long prompt took more memory than there
// was. A prompt as long as the context, of which each token is scored: beside one that decodes, in steps of bounded
// size.
TEST_F(KnownBugs, ALongestPromptIsScoredWhole) {
  const auto model = load();
  engine::Service service(*model, {.engine = options()});
  engine::EventStream neighbor = service.stream(request("beside it", 30));
  std::string text;
  for (std::uint32_t i = 0; i < kContext; ++i) text += static_cast<char>('a' + i * i % 23);
  engine::Request asked = request(text, 1);
  asked.prompt_logprobs = 5;
  std::vector<sample::TokenReport> scored;
  engine::EventStream stream = service.stream(asked);
  while (const auto event = stream.next()) scored.insert(scored.end(), event->prompt.begin(), event->prompt.end());
  const engine::Generation whole = alone(asked);
  ASSERT_EQ(scored.size(), kContext - 1);
  for (std::size_t i = 0; i < scored.size(); ++i) {
    EXPECT_EQ(scored[i].logprob, whole.prompt[i].logprob);
    EXPECT_EQ(scored[i].top, whole.prompt[i].top);
    EXPECT_EQ(scored[i].top.size(), 5u);
  }
  expect_same(read(std::move(neighbor)), alone(request("beside it", 30)));
  service.between_steps([](engine::Engine& engine) {
    for (const engine::StepRecord& record : engine.steps().records()) EXPECT_LE(record.rows, 32u);
  });
}

}  // namespace
}  // namespace backplane
