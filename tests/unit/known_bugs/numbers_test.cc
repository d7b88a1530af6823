// Bugs in what is computed and chosen.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/expect_error.h"
#include "tests/support/tiny_model.h"
#include "tests/support/wrapped_model.h"
#include "tests/unit/known_bugs/known_bugs.h"

namespace backplane {
namespace {

// https://github.com/vllm-project/vllm/issues/5898: greedy decoding gave other tokens in a batch.
TEST_F(KnownBugs, GreedyIsTheSameAloneAndAmong64) {
  const engine::Request asked = request("the same prompt", 24);
  const engine::Generation want = alone(asked);
  EXPECT_TRUE(std::all_of(want.steps.begin(), want.steps.end(), [](const auto& step) { return step.sequences == 1; }));
  const auto model = load(64);
  engine::Engine engine(*model, {.max_sequences = 64, .token_budget = kContext, .prefix_cache = false});
  std::vector<engine::RequestId> same;
  for (int i = 0; i < 64; ++i) {
    if (i % 16 == 5) {
      same.push_back(engine.submit(asked));
    } else {
      engine.submit(request(std::string(1 + i % 13, static_cast<char>(' ' + i)), 30));
    }
  }
  std::map<engine::RequestId, Told> told;
  while (!engine.idle()) {
    for (const engine::Event& event : engine.step()) add(told[event.request], event);
  }
  for (const engine::RequestId id : same) {
    EXPECT_EQ(told[id].ids, want.ids);
    EXPECT_EQ(told[id].logprobs, want.logprobs);
    EXPECT_EQ(told[id].top, want.top);
  }
  const auto& records = engine.steps().records();
  EXPECT_GT(std::count_if(records.begin(), records.end(), [](const auto& step) { return step.n_decode == 64; }), 10);
}

// https://github.com/vllm-project/vllm/issues/13035: NaN became a text of "!!!!". A weight file in which the embedding
// of one token is NaN: who says it gets an error, and nobody else is told anything else.
class KnownBugsOfWeights : public KnownBugs {
 protected:
  static constexpr char kPoison = '~';

  static std::string gguf() {
    std::string bytes = test::small_chat_model();
    test::TinyRandom random(11);  // as the model's first tensor is made
    const auto table = test::tiny_values(random, test::kSmallVocabulary * 32, 0.4f);
    const std::string_view row(reinterpret_cast<const char*>(&table[kPoison * 32]), 32 * sizeof(float));
    const std::size_t at = bytes.find(row);
    if (at == std::string::npos) throw std::logic_error("the model's embedding is made otherwise");
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(&bytes[at], &nan, sizeof nan);
    return bytes;
  }
  KnownBugsOfWeights() : KnownBugs(gguf()) {}
};

TEST_F(KnownBugsOfWeights, NanIsAnErrorOfWhoMeetsIt) {
  const auto model = load();
  engine::Service service(*model, {.engine = options()});
  const engine::Request sound = request("a sound prompt, and long", 20);
  engine::EventStream neighbor = service.stream(sound);
  for (int time = 0; time < 2; ++time) {  // nothing of it is in the cache the second time
    const Told told = read(service.stream(request("a sound prompt, and ~ NaN", 20)));
    EXPECT_EQ(told.ids, Ids{});
    EXPECT_EQ(told.text, "");
    EXPECT_EQ(told.finish, engine::FinishReason::kError);
    ASSERT_TRUE(told.error);
    EXPECT_EQ(told.error->code(), ErrorCode::kDevice);
    EXPECT_NE(std::string(told.error->what()).find("NaN"), std::string::npos);
  }
  const engine::Generation want = alone(sound);
  expect_same(read(std::move(neighbor)), want);
  expect_same(read(service.stream(sound)), want);
}

// Of which no token but a few can come.
class FewTokens final : public test::WrappedModel {
 public:
  using WrappedModel::WrappedModel;
  engine::Logits forward(const sched::Step& step) override {
    engine::Logits logits = WrappedModel::forward(step);
    for (std::size_t i = 0; i < logits.values.size(); ++i) {
      if (i % logits.vocab_size > 2) logits.values[i] = -std::numeric_limits<double>::infinity();
    }
    return logits;
  }
};

// https://github.com/sgl-project/sglang/issues/5984: with top_k=1 and five log-probabilities, four were minus infinity,
// which is no JSON. They are the model's own, before any filter; what can't come is left out.
TEST_F(KnownBugs, TopLogprobsAreNumbers) {
  const auto real = load();
  for (const bool few : {false, true}) {
    FewTokens wrapped(*real);
    engine::Model& model = few ? static_cast<engine::Model&>(wrapped) : *real;
    engine::Service service(model, {.engine = options()});
    engine::Request asked = request("top", 10);
    asked.sampling = {.temperature = 1, .top_k = 1};
    asked.top_logprobs = 5;
    const Told told = read(service.stream(asked));
    ASSERT_EQ(told.top.size(), 10u);
    for (std::size_t i = 0; i < told.top.size(); ++i) {
      EXPECT_TRUE(std::isfinite(told.logprobs[i]));
      EXPECT_EQ(told.top[i].size(), few ? 3u : 5u);
      for (const sample::TokenLogprob& top : told.top[i]) EXPECT_TRUE(std::isfinite(top.logprob));
      EXPECT_EQ(told.top[i][0].id, told.ids[i]);
    }
  }
}

// https://github.com/vllm-project/vllm/pull/16529: a token outside of the vocabulary ended the process.
TEST_F(KnownBugs, OneBadParameterHarmsNobody) {
  const auto model = load();
  engine::Service service(*model, {.engine = options()});
  const engine::Request good = request("a good one", 40);
  engine::EventStream neighbor = service.stream(good);
  const auto refused = [&](auto&& spoil, const char* part) {
    engine::Request bad = request("a bad one", 4);
    spoil(bad);
    EXPECT_ERROR(service.stream(bad), ErrorCode::kUsage, part);
  };
  for (const TokenId id : {-1, test::kSmallVocabulary, std::numeric_limits<TokenId>::max()}) {
    refused([id](engine::Request& r) { r.sampling.logit_bias = {{id, 1}}; }, "logit_bias");
    refused([id](engine::Request& r) { r.sampling.allowed_ids = {id}; }, "allowed");
    refused([id](engine::Request& r) { r.sampling.bad_words = {{'a', id}}; }, "bad_words");
    refused([id](engine::Request& r) { r.stop_ids = {id}; }, "stop");
    refused([id](engine::Request& r) { r.prompt[1] = id; }, "prompt");
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  refused([nan](engine::Request& r) { r.sampling.temperature = nan; }, "temperature");
  refused([nan](engine::Request& r) { r.sampling.logit_bias = {{1, nan}}; }, "logit_bias");
  refused([](engine::Request& r) { r.n = 0; }, "n");
  refused([](engine::Request& r) { r.prompt.clear(); }, "prompt");
  const engine::Generation want = alone(good);
  expect_same(read(std::move(neighbor)), want);
  expect_same(read(service.stream(good)), want);
  EXPECT_EQ(service.stats().submitted, 2u);
}

}  // namespace
}  // namespace backplane
