// Answers in the shapes of OpenAI's reference, from made-up events.
#include "tools/openai/openai_response.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/formats/gguf.h"
#include "core/formats/tokenizer_bundle.h"
#include "tests/support/expect_error.h"
#include "tests/support/small_chat_model.h"
#include "tools/openai/openai_prompt.h"

namespace backplane::tools::openai {
namespace {

formats::TokenizerBundle small_bundle() {
  const test::TempFolder folder;
  return formats::load_tokenizer(folder.write("v.gguf", test::small_chat_model()));
}

// The small model's vocabulary: byte b is token b, <|im_start|> 256, <|im_end|> 257, "hi" 258.
class OpenAiResponse : public ::testing::Test {
 protected:
  Json answer(const ApiRequest& request, const std::vector<AnsweredPrompt>& prompts) const {
    return response_body(request, {"7", 1700000000, "m"}, prompts, bundle_.tokenizer);
  }
  static engine::Event event(TokenId id, std::string text, double logprob, std::vector<sample::TokenLogprob> top,
                             engine::FinishReason finish = engine::FinishReason::kNone) {
    return {.token = id, .text = std::move(text), .logprob = logprob, .top = std::move(top), .finish = finish};
  }
  static Choice choice(const std::vector<engine::Event>& events) {
    Choice out;
    for (const engine::Event& each : events) out.add(each);
    return out;
  }
  static ApiRequest request(Endpoint endpoint, std::optional<std::uint32_t> logprobs = {}) {
    ApiRequest out;
    out.endpoint = endpoint;
    out.settings.top_logprobs = logprobs;
    return out;
  }

  formats::TokenizerBundle bundle_ = small_bundle();
};

constexpr auto kStop = engine::FinishReason::kStop;
constexpr auto kLength = engine::FinishReason::kLength;

TEST_F(OpenAiResponse, OfAChat) {
  const Choice one = choice({event(258, "hi", -0.5, {}), event(257, "", -1, {}, kStop)});
  EXPECT_EQ(answer(request(Endpoint::kChat), {{.ids = {1, 2, 3}, .choices = {one}}}), Json::parse(R"({
      "id": "chatcmpl-7", "object": "chat.completion", "created": 1700000000, "model": "m",
      "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi", "refusal": null}, "logprobs": null,
                   "finish_reason": "stop"}],
      "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}})"));
}

TEST_F(OpenAiResponse, OfCompletions) {
  const Choice a = choice({event('a', "a", 0, {}, kLength)}), b = choice({event('b', "b", 0, {}, kStop)});
  const std::vector<AnsweredPrompt> prompts = {{.ids = {1, 2}, .choices = {a, b}}, {.ids = {3}, .choices = {b, a}}};
  EXPECT_EQ(answer(request(Endpoint::kCompletions), prompts), Json::parse(R"({
      "id": "cmpl-7", "object": "text_completion", "created": 1700000000, "model": "m",
      "choices": [{"index": 0, "text": "a", "logprobs": null, "finish_reason": "length"},
                  {"index": 1, "text": "b", "logprobs": null, "finish_reason": "stop"},
                  {"index": 2, "text": "b", "logprobs": null, "finish_reason": "stop"},
                  {"index": 3, "text": "a", "logprobs": null, "finish_reason": "length"}],
      "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}})"));
}

// "é" in two tokens, of which neither is a character.
TEST_F(OpenAiResponse, HasChatLogprobsWithBytes) {
  const Choice one =
      choice({event(258, "hi", -0.5, {{258, -0.5}, {'x', -2}}), event(0xC3, "", -1, {{0xC3, -1}, {0, -9}}),
              event(0xA9, "\xC3\xA9", -2, {{'y', -1}, {0xA9, -2}}, kLength)});
  const Json got = answer(request(Endpoint::kChat, 2), {{.ids = {1}, .choices = {one}}})["choices"][0]["logprobs"];
  EXPECT_EQ(got["refusal"], nullptr);
  ASSERT_EQ(got["content"].size(), 3u);
  EXPECT_EQ(got["content"][0], Json::parse(R"({"token": "hi", "logprob": -0.5, "bytes": [104, 105], "top_logprobs": [
      {"token": "hi", "logprob": -0.5, "bytes": [104, 105]}, {"token": "x", "logprob": -2.0, "bytes": [120]}]})"));
  EXPECT_EQ(got["content"][1]["token"], "\xEF\xBF\xBD");
  EXPECT_EQ(got["content"][1]["bytes"], Json::parse("[195]"));
  EXPECT_EQ(got["content"][2]["bytes"], Json::parse("[169]"));
  EXPECT_EQ(got["content"][2]["top_logprobs"][0]["token"], "y");
}

TEST_F(OpenAiResponse, HasCompletionLogprobsWithOffsets) {
  const Choice one = choice({event(0xC3, "", -1, {{'x', -0.5}}), event(0xA9, "\xC3\xA9", -2, {{0xA9, -2}}),
                             event('!', "!", -3, {{'!', -3}}, kLength)});
  ApiRequest asked = request(Endpoint::kCompletions, 1);
  asked.echo = true;
  const Json choice0 = answer(asked, {{.ids = {'a', 'b'},
                                       .echo = "\xC3\xBC"
                                               "b",
                                       .choices = {one}}})["choices"][0];
  EXPECT_EQ(choice0["text"],
            "\xC3\xBC"
            "b\xC3\xA9!");
  EXPECT_EQ(choice0["logprobs"], Json::parse(R"({"tokens": ["bytes:\\xc3", "bytes:\\xa9", "!"],
      "token_logprobs": [-1.0, -2.0, -3.0],
      "top_logprobs": [{"x": -0.5, "bytes:\\xc3": -1.0}, {"bytes:\\xa9": -2.0}, {"!": -3.0}],
      "text_offset": [2, 3, 3]})"));
}

// As lm-eval asks: the prompt's tokens come first, of which the first one has no probability.
TEST_F(OpenAiResponse, HasThePromptsLogprobsWithItsEcho) {
  engine::Event first = event('!', "!", -3, {{'!', -3}}, kLength);
  first.prompt = {{-0.25, {{'b', -0.25}}}};
  ApiRequest asked = request(Endpoint::kCompletions, 1);
  asked.echo = true;
  const AnsweredPrompt prompt{.ids = {'a', 'b'}, .echo = "ab", .echo_offsets = {0, 1}, .choices = {choice({first})}};
  EXPECT_EQ(answer(asked, {prompt})["choices"][0]["logprobs"], Json::parse(R"({"tokens": ["a", "b", "!"],
      "token_logprobs": [null, -0.25, -3.0], "top_logprobs": [null, {"b": -0.25}, {"!": -3.0}],
      "text_offset": [0, 1, 2]})"));
}

TEST_F(OpenAiResponse, HasNoInfinity) {
  const double never = -std::numeric_limits<double>::infinity();
  const Choice one = choice({event('a', "a", never, {{'b', 0}}, kLength)});
  const std::vector<AnsweredPrompt> prompts = {{.ids = {1}, .choices = {one}}};
  EXPECT_EQ(answer(request(Endpoint::kChat, 1), prompts)["choices"][0]["logprobs"]["content"][0]["logprob"], -9999.0);
  EXPECT_EQ(answer(request(Endpoint::kCompletions, 1), prompts)["choices"][0]["logprobs"]["token_logprobs"][0],
            -9999.0);
}

TEST_F(OpenAiResponse, NamesTokensWithoutText) {
  const Choice one = choice({event(300, "", -1, {{300, -1}}, kLength)});
  const Json got = answer(request(Endpoint::kChat, 1), {{.ids = {1}, .choices = {one}}})["choices"][0]["logprobs"];
  EXPECT_EQ(got["content"][0]["token"], "token_id:300");
  EXPECT_EQ(got["content"][0]["bytes"], nullptr);
  const TokenNames none(nullptr);
  EXPECT_EQ(none.unique(5), "token_id:5");
}

TEST_F(OpenAiResponse, GivesIdsWhereAsked) {
  ApiRequest asked = request(Endpoint::kCompletions);
  asked.return_token_ids = true;
  const std::vector<AnsweredPrompt> prompts = {{.ids = {1, 2}, .choices = {choice({event('a', "a", 0, {}, kLength)})}}};
  const Json completion = answer(asked, prompts);
  EXPECT_EQ(completion["choices"][0]["token_ids"], Json::parse("[97]"));
  EXPECT_EQ(completion["choices"][0]["prompt_token_ids"], Json::parse("[1, 2]"));
  asked.endpoint = Endpoint::kChat;
  EXPECT_EQ(answer(asked, prompts)["prompt_token_ids"], Json::parse("[1, 2]"));
}

TEST_F(OpenAiResponse, ShowsThePromptOnlyWhereNoTokenIsWanted) {
  ApiRequest asked = request(Endpoint::kCompletions, 0);
  asked.echo = asked.only_echo = true;
  const Json got = answer(asked, {{.ids = {1}, .echo = "p", .choices = {choice({event('a', "a", -1, {}, kStop)})}}});
  EXPECT_EQ(got["choices"][0]["text"], "p");
  EXPECT_EQ(got["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(got["choices"][0]["logprobs"]["tokens"], Json::array());
  EXPECT_EQ(got["usage"]["completion_tokens"], 0);
}

TEST_F(OpenAiResponse, FindsTheErrorOfAnyChoice) {
  Choice bad = choice({event('a', "a", 0, {})});
  engine::Event end{.finish = engine::FinishReason::kError};
  end.error = Error(ErrorCode::kDevice, "NaN");
  bad.add(end);
  const Choice canceled = choice({{.finish = engine::FinishReason::kCanceled}});
  EXPECT_FALSE(error_of({{.ids = {1}, .choices = {canceled}}}));
  const auto error = error_of({{.ids = {1}, .choices = {canceled}}, {.ids = {1}, .choices = {canceled, bad}}});
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kDevice);
}

class OpenAiPrompt : public OpenAiResponse {
 protected:
  std::vector<PreparedPrompt> prepared(Endpoint endpoint, const std::string& body) const {
    return prepare(parse_request(endpoint, Json::parse(body)), served_);
  }

  ChatPrompt chat_{bundle_};
  ServedModel served_{bundle_.tokenizer, &chat_, {257}};
};

TEST_F(OpenAiPrompt, RendersTheModelsTemplate) {
  const auto got = prepared(Endpoint::kChat, R"({"messages": [{"role": "user", "content": "hi"}]})");
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].request.prompt, ChatPrompt(bundle_).ids({{"user", "hi"}}));
  EXPECT_EQ(got[0].request.eos_ids, std::vector<TokenId>{257});
  const auto quiet =
      prepared(Endpoint::kChat, R"({"messages": [{"role": "user", "content": "hi"}], "add_generation_prompt": false})");
  EXPECT_LT(quiet[0].request.prompt.size(), got[0].request.prompt.size());
}

TEST_F(OpenAiPrompt, TakesTextAndIds) {
  const auto got =
      prepared(Endpoint::kCompletions, R"({"prompt": ["hi", [97, 300]], "echo": true, "stop_token_ids": [5]})");
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].request.prompt, std::vector<TokenId>{258});
  EXPECT_EQ(got[0].echo, "hi");
  EXPECT_EQ(got[1].request.prompt, (std::vector<TokenId>{97, 300}));
  EXPECT_EQ(got[1].echo, "a");
  EXPECT_EQ(got[1].request.stop_ids, std::vector<TokenId>{5});
  EXPECT_TRUE(got[0].echo_offsets.empty());
  const auto scored =
      prepared(Endpoint::kCompletions, R"({"prompt": ["xhi!", [258, 257, 97]], "echo": true, "logprobs": 1})");
  EXPECT_EQ(scored[0].request.prompt_logprobs, 1u);
  EXPECT_EQ(scored[0].echo_offsets, (std::vector<std::size_t>{0, 1, 3}));
  EXPECT_EQ(scored[1].echo, "hi<|im_end|>a");
  EXPECT_EQ(scored[1].echo_offsets, (std::vector<std::size_t>{0, 2, 12}));
}

// vLLM's rule: a word also as it is behind a space, where that takes as many tokens and begins with another one.
TEST_F(OpenAiPrompt, FindsBadWordsBehindASpace) {
  const auto got = prepared(Endpoint::kCompletions, R"({"prompt": "hi", "bad_words": ["a", " b"]})");
  EXPECT_EQ(got[0].request.sampling.bad_words, (std::vector<std::vector<TokenId>>{{'a'}, {' ', 'b'}}));
}

TEST_F(OpenAiPrompt, SaysWhatTheModelLacks) {
  const auto refused = [](const ServedModel& model, Endpoint endpoint, const char* body, const std::string& part) {
    try {
      prepare(parse_request(endpoint, Json::parse(body)), model);
      ADD_FAILURE() << body;
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status(), 400);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  const char* chat = R"({"messages": [{"role": "user", "content": "hi"}]})";
  refused({bundle_.tokenizer, nullptr, {}}, Endpoint::kChat, chat, "no chat template");
  refused({}, Endpoint::kCompletions, R"({"prompt": "hi"})", "no tokenizer");
  refused({}, Endpoint::kCompletions, R"({"prompt": [1], "stop": "x"})", "no tokenizer");
  EXPECT_EQ(prepare(parse_request(Endpoint::kCompletions, Json::parse(R"({"prompt": [1]})")), {}).size(), 1u);

  formats::TokenizerBundle strict = bundle_;
  strict.chat_template = "{{ raise_exception('roles must alternate') }}";
  const ChatPrompt refusing(strict);
  refused({bundle_.tokenizer, &refusing, {}}, Endpoint::kChat, chat, "roles must alternate");
}

}  // namespace
}  // namespace backplane::tools::openai
