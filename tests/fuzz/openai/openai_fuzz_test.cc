// Mutates lines of batch files: whatever comes of one must be requests to the engine or the error that is meant for it.
// Seeded, so that a failure repeats; made for the sanitizers.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "core/formats/tokenizer_bundle.h"
#include "tests/support/small_chat_model.h"
#include "tools/batch_lines.h"
#include "tools/openai/openai_error.h"
#include "tools/openai/openai_prompt.h"
#include "tools/openai/openai_request.h"

namespace backplane::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kRounds = 20000;

const std::vector<std::string> kLines = {
    R"({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": [)"
    R"({"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "t"}]}], "n": 2,)"
    R"( "max_completion_tokens": 5, "logprobs": true, "top_logprobs": 3, "stop": ["a", "b"], "seed": 7,)"
    R"( "chat_template_kwargs": {"x": [1, {"y": null}]}, "response_format": {"type": "text"}, "tools": []}})",
    R"({"custom_id": "b", "url": "/v1/completions", "body": {"prompt": ["x", [1, 2], "yz"], "max_tokens": 5,)"
    R"( "temperature": 0.5, "top_p": 0.9, "top_k": 4, "min_p": 0.1, "typical_p": 0.9, "repetition_penalty": 1.1,)"
    R"( "presence_penalty": 0.5, "frequency_penalty": -0.5, "logit_bias": {"5": 1, "6": -100}, "echo": true,)"
    R"( "logprobs": 2, "stop_token_ids": [3], "allowed_token_ids": [1, 2, 3], "bad_words": ["q r", " s"],)"
    R"( "min_tokens": 1, "ignore_eos": true, "cache_salt": "c", "priority": -1, "stream_options": {}, "best_of": 1}})"};

const std::vector<std::string> kPieces = {"null",
                                          "true",
                                          "0",
                                          "-1",
                                          "1e308",
                                          "1e-320",
                                          "9223372036854775808",
                                          "-9223372036854775809",
                                          "18446744073709551615",
                                          "2147483648",
                                          "4294967296",
                                          "0.5",
                                          "\"\"",
                                          "\"\\u0000\"",
                                          "\"\\ud800\"",
                                          "\"\xC3\"",
                                          "\"\xEF\xBF\xBD\"",
                                          "[]",
                                          "{}",
                                          "[[]]",
                                          "[null]",
                                          "{\"a\": {}}",
                                          "\"<|im_end|>\"",
                                          ",",
                                          ":",
                                          "{",
                                          "}",
                                          "[",
                                          "]",
                                          "\"",
                                          "\\",
                                          "\n"};

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  std::size_t below(std::size_t n) { return random_() % n; }

  // The text: bytes changed, cut, doubled, or replaced by pieces.
  std::string bytes(std::string text) {
    for (std::size_t n = 1 + below(4); n > 0 && !text.empty(); --n) {
      const std::size_t at = below(text.size()), length = below(std::min<std::size_t>(text.size() - at, 20) + 1);
      switch (below(5)) {
        case 0:
          text[at] = static_cast<char>(random_());
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          text.insert(at, text.substr(at, length));
          break;
        case 3:
          text.insert(at, kPieces[below(kPieces.size())]);
          break;
        default:
          text.replace(at, length, kPieces[below(kPieces.size())]);
      }
    }
    return text;
  }

  // The meaning: some value becomes another one.
  void value(Json& json) {
    if (json.is_structured() && !json.empty() && below(8) != 0) {
      auto it = json.begin();
      std::advance(it, static_cast<std::ptrdiff_t>(below(json.size())));
      return value(*it);
    }
    const Json piece = Json::parse(kPieces[below(kPieces.size())], nullptr, false);
    json = piece.is_discarded() ? Json(std::string(below(3000), 'x')) : piece;
  }

 private:
  std::mt19937 random_;
};

class OpenAiFuzz : public ::testing::Test {
 protected:
  static formats::TokenizerBundle bundle() {
    const test::TempFolder folder;
    return formats::load_tokenizer(folder.write("v.gguf", test::small_chat_model()));
  }

  // Fails for any other exception.
  void take(const std::string& text) {
    try {
      const BatchLine line = parse_batch_line(text);
      const openai::ApiRequest request = openai::parse_request(line.endpoint, line.body);
      const auto prompts = openai::prepare(request, model_);
      ++accepted_;
      ASSERT_FALSE(prompts.empty());
      ASSERT_LE(prompts.size() * request.settings.n, openai::kMostChoices);
      for (const auto& prompt : prompts) sample::validate(prompt.request.sampling);
    } catch (const BatchLineError& error) {
      ++refused_lines_;
      const std::string result = error_line("1", error, 7);
      ASSERT_TRUE(parse_result(result)) << result;
    } catch (const openai::ApiError& error) {
      ++refused_bodies_;
      ASSERT_EQ(error.status(), 400) << error.what();
      const std::string result = response_line("1", "c", error.status(), error.body());
      ASSERT_TRUE(parse_result(result)) << result;
    }
  }

  formats::TokenizerBundle bundle_ = bundle();
  ChatPrompt chat_{bundle_};
  openai::ServedModel model_{bundle_.tokenizer, &chat_, {257}};
  int accepted_ = 0, refused_lines_ = 0, refused_bodies_ = 0;
};

TEST_F(OpenAiFuzz, ChangedBytes) {
  for (int round = 0; round < kRounds; ++round) {
    Mutator mutate(static_cast<unsigned>(round));
    ASSERT_NO_THROW(take(mutate.bytes(kLines[mutate.below(kLines.size())]))) << round;
  }
  EXPECT_GT(accepted_, kRounds / 100);
  EXPECT_GT(refused_lines_, kRounds / 100);
  EXPECT_GT(refused_bodies_, kRounds / 100);
}

TEST_F(OpenAiFuzz, ChangedValues) {
  for (int round = 0; round < kRounds; ++round) {
    Mutator mutate(static_cast<unsigned>(round));
    Json line = Json::parse(kLines[mutate.below(kLines.size())]);
    for (std::size_t n = 1 + mutate.below(2); n > 0; --n) mutate.value(line["body"]);
    ASSERT_NO_THROW(take(line.dump(-1, ' ', false, Json::error_handler_t::replace))) << round;
  }
  EXPECT_GT(accepted_, kRounds / 20);
  EXPECT_GT(refused_bodies_, kRounds / 20);
}

// A results file is read again at the next start, whatever has become of it.
TEST_F(OpenAiFuzz, ChangedResults) {
  const std::string results[] = {response_line("12", "a", 200, {{"choices", {1, 2}}, {"body", {{"error", 1}}}}),
                                 error_line("12", {"invalid_url", "no", "b"}, 3),
                                 error_line("12", {kDuplicateCustomId, "no", "b"}, 3)};
  int known = 0;
  for (int round = 0; round < kRounds; ++round) {
    Mutator mutate(static_cast<unsigned>(round));
    const auto key = parse_result(mutate.bytes(results[mutate.below(3)]));
    if (!key) continue;
    ++known;
    ASSERT_TRUE(!key->custom_id.empty() || key->line) << round;
  }
  EXPECT_GT(known, kRounds / 100);
}

}  // namespace
}  // namespace backplane::tools
