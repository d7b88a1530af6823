// Bugs that other engines have shipped, each tried on ours: requests from outside, through the service, to a model with
// weights, attention and a tokenizer. The suite is named KnownBugs; each test names the report that it is about. What
// is closer to one part, and has more cases, is with that part: tests/unit/engine, kv, sample, text, serving.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/generation.h"
#include "core/engine/service.h"
#include "core/formats/tokenizer_bundle.h"
#include "models/load.h"
#include "tests/support/devices.h"
#include "tests/support/small_chat_model.h"
#include "tests/support/temp_folder.h"

namespace backplane {

using Ids = std::vector<TokenId>;

// What came of a request with one answer.
struct Told {
  Ids ids;
  std::vector<double> logprobs;
  std::vector<std::vector<sample::TokenLogprob>> top;
  std::vector<std::string> pieces;  // of text, as they were streamed
  std::string text;                 // joined
  engine::FinishReason finish = engine::FinishReason::kNone;
  std::optional<Error> error = {};
};

inline void add(Told& told, const engine::Event& event) {
  if (event.token >= 0) told.ids.push_back(event.token);
  if (event.logprob) told.logprobs.push_back(*event.logprob);
  if (event.logprob) told.top.push_back(event.top);
  told.pieces.push_back(event.text);
  told.text += event.text;
  told.finish = event.finish;
  told.error = event.error;
}

inline Told read(engine::EventStream stream) {
  Told told;
  while (const auto event = stream.next()) add(told, *event);
  return told;
}

// Tokens and log-probabilities, in every bit.
inline void expect_same(const Told& got, const engine::Generation& want) {
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_EQ(got.logprobs, want.logprobs);
  EXPECT_EQ(got.top, want.top);
  EXPECT_EQ(got.text, want.text);
  EXPECT_EQ(got.finish, want.finish);
}

class KnownBugs : public testing::Test {
 protected:
  static constexpr std::uint32_t kContext = 256, kPage = 4;

  KnownBugs() : KnownBugs(test::small_chat_model()) {}
  explicit KnownBugs(const std::string& gguf)
      : path_(folder_.write("model.gguf", gguf)), tokenizer_(formats::load_tokenizer(path_).tokenizer) {}

  // `kv_tokens`: what all sequences together may have in the cache; 0: a whole context each.
  std::unique_ptr<models::LoadedModel> load(std::uint32_t max_sequences = 8, std::uint64_t kv_tokens = 0) const {
    const auto cpu = test::open_device("cpu:f32");
    return models::load(models::ModelFile(path_), cpu, cpu,
                        {.max_sequences = max_sequences,
                         .kv_tokens = kv_tokens,
                         .max_step_tokens = kContext,
                         .page_size = kPage,
                         .executor = {}});
  }
  engine::EngineOptions options() const { return {.token_budget = 32, .tokenizer = tokenizer_, .headroom = 4}; }

  // With nothing else in the engine, nothing to find, and its prompt in one step.
  engine::Generation alone(engine::Model& model, engine::Request request) const {
    engine::Engine engine(model, {.max_sequences = 1, .tokenizer = tokenizer_, .prefix_cache = false});
    engine::Generation done = engine::generate(engine, std::move(request));
    EXPECT_EQ(done.steps.front().sequences, 1u);
    EXPECT_EQ(done.steps.front().cached, 0u);
    return done;
  }
  engine::Generation alone(engine::Request request) const { return alone(*load(1), std::move(request)); }

  Ids encode(const std::string& text) const { return tokenizer_->encode(text, {}); }
  // Greedy, with the log-probabilities of the best two, and no end before max_tokens.
  engine::Request request(const std::string& prompt, std::uint32_t max_tokens) const {
    return {.prompt = encode(prompt), .max_tokens = max_tokens, .ignore_eos = true, .top_logprobs = 2};
  }

  test::TempFolder folder_;
  std::filesystem::path path_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
};

}  // namespace backplane
