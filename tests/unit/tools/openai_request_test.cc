// Bodies as OpenAI's and vLLM's references document them, and what is wrong with others.
#include "tools/openai/openai_request.h"

#include <gtest/gtest.h>

#include <string>

#include "tools/openai/openai_error.h"

namespace backplane::tools::openai {
namespace {

ApiRequest completion(const std::string& more) {
  return parse_request(Endpoint::kCompletions, Json::parse(R"({"model": "m", "prompt": "p")" + more + "}"));
}

ApiRequest chat(const std::string& more) {
  const std::string start = R"({"model": "m", "messages": [{"role": "user", "content": "u"}])";
  return parse_request(Endpoint::kChat, Json::parse(start + more + "}"));
}

ApiRequest chat_of(const std::string& messages) {
  return parse_request(Endpoint::kChat, Json::parse(R"({"messages": )" + messages + "}"));
}

// The body is refused with status 400, naming `param` in the error and in its message.
template <class Parse>
void expect_refused(Parse&& parse, const std::string& body, const std::string& param) {
  try {
    parse(body);
    ADD_FAILURE() << "accepted: " << body;
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400) << body;
    EXPECT_EQ(error.param(), param) << body;
    EXPECT_NE(std::string(error.what()).find(param), std::string::npos) << error.what();
    const Json answer = error.body();
    EXPECT_EQ(answer["error"]["type"], "invalid_request_error");
    EXPECT_EQ(answer["error"]["message"], error.what());
  }
}

TEST(OpenAiRequest, KnowsItsPaths) {
  EXPECT_EQ(endpoint_of("/v1/completions"), Endpoint::kCompletions);
  EXPECT_EQ(endpoint_of("/v1/chat/completions"), Endpoint::kChat);
  for (const char* other : {"", "/v1/embeddings", "/v1/completions/", "v1/completions", "/v1/chat"}) {
    EXPECT_FALSE(endpoint_of(other)) << other;
  }
}

TEST(OpenAiRequest, HasTheReferencesDefaults) {
  const ApiRequest c = completion("");
  EXPECT_EQ(c.model, "m");
  ASSERT_EQ(c.prompts.size(), 1u);
  EXPECT_EQ(std::get<std::string>(c.prompts[0]), "p");
  EXPECT_EQ(c.settings.max_tokens, 16u);
  EXPECT_EQ(c.settings.sampling.temperature, 1);
  EXPECT_EQ(c.settings.sampling.top_p, 1);
  EXPECT_EQ(c.settings.sampling.top_k, 0);
  EXPECT_EQ(c.settings.sampling.repetition_penalty, 1);
  EXPECT_FALSE(c.has_seed);
  EXPECT_EQ(c.settings.n, 1u);
  EXPECT_FALSE(c.echo || c.stream || c.settings.ignore_eos || c.settings.include_stop || c.return_token_ids);
  EXPECT_TRUE(c.add_special_tokens);
  EXPECT_FALSE(c.settings.top_logprobs);
  EXPECT_FALSE(chat("").settings.max_tokens);
}

TEST(OpenAiRequest, ReadsEveryParameter) {
  const ApiRequest r = completion(R"(, "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1,
      "typical_p": 0.8, "repetition_penalty": 1.1, "presence_penalty": -1, "frequency_penalty": 2, "n": 3, "best_of": 3,
      "logit_bias": {"5": -100, "17": 2.5}, "seed": -1, "stop": ["a", "b"], "stop_token_ids": [4],
      "include_stop_str_in_output": true, "ignore_eos": true, "min_tokens": 2, "allowed_token_ids": [1, 2],
      "bad_words": ["x"], "logprobs": 4, "echo": true, "stream": true, "stream_options": {"include_usage": true},
      "return_token_ids": true, "cache_salt": "s", "priority": -3, "add_special_tokens": false, "user": "u", "suffix": "")");
  const auto& s = r.settings;
  EXPECT_EQ(s.max_tokens, 7u);
  EXPECT_EQ(s.sampling.temperature, 0.5);
  EXPECT_EQ(s.sampling.top_p, 0.9);
  EXPECT_EQ(s.sampling.top_k, 40);
  EXPECT_EQ(s.sampling.min_p, 0.1);
  EXPECT_EQ(s.sampling.typical_p, 0.8);
  EXPECT_EQ(s.sampling.repetition_penalty, 1.1);
  EXPECT_EQ(s.sampling.presence_penalty, -1);
  EXPECT_EQ(s.sampling.frequency_penalty, 2);
  EXPECT_EQ(s.sampling.logit_bias, (std::map<TokenId, double>{{5, -100}, {17, 2.5}}));
  EXPECT_EQ(s.sampling.allowed_ids, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(s.sampling.seed, UINT64_MAX);
  EXPECT_TRUE(r.has_seed);
  EXPECT_EQ(s.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(s.stop_ids, std::vector<TokenId>{4});
  EXPECT_EQ(s.min_tokens, 2u);
  EXPECT_EQ(s.top_logprobs, 4u);
  EXPECT_TRUE(s.include_stop && s.ignore_eos && r.echo && r.stream && r.include_usage && r.return_token_ids);
  EXPECT_FALSE(r.add_special_tokens);
  EXPECT_EQ(r.bad_words, std::vector<std::string>{"x"});
  EXPECT_EQ(s.cache_salt, "s");
  EXPECT_EQ(s.priority, -3);
  EXPECT_EQ(s.prompt_logprobs, 4u);
  EXPECT_EQ(s.n, 3u);
}

TEST(OpenAiRequest, TakesOtherSpellings) {
  EXPECT_EQ(completion(R"(, "stop": "one")").settings.stop, std::vector<std::string>{"one"});
  EXPECT_EQ(completion(R"(, "max_tokens": 5.0)").settings.max_tokens, 5u);
  EXPECT_EQ(completion(R"(, "top_k": -1)").settings.sampling.top_k, 0);
  EXPECT_EQ(completion(R"(, "seed": 18446744073709551615)").settings.sampling.seed, UINT64_MAX);
  EXPECT_EQ(chat(R"(, "max_tokens": 5)").settings.max_tokens, 5u);
  EXPECT_EQ(chat(R"(, "max_tokens": 5, "max_completion_tokens": 6)").settings.max_tokens, 6u);
  EXPECT_EQ(chat(R"(, "logprobs": true)").settings.top_logprobs, 0u);
  EXPECT_EQ(chat(R"(, "logprobs": true, "top_logprobs": 20)").settings.top_logprobs, 20u);
  EXPECT_FALSE(chat(R"(, "logprobs": false, "top_logprobs": 0)").settings.top_logprobs);
  const ApiRequest only = completion(R"(, "echo": true, "max_tokens": 0)");
  EXPECT_TRUE(only.only_echo);
  EXPECT_EQ(only.settings.max_tokens, 1u);
  EXPECT_EQ(chat(R"(, "chat_template_kwargs": {"enable_thinking": false})").template_variables["enable_thinking"],
            false);
}

TEST(OpenAiRequest, ReadsPromptsOfEveryKind) {
  const auto prompts = [](const std::string& prompt) {
    return parse_request(Endpoint::kCompletions, Json::parse(R"({"prompt": )" + prompt + "}")).prompts;
  };
  EXPECT_EQ(prompts(R"(["a", "b"])"), (std::vector<Prompt>{"a", "b"}));
  EXPECT_EQ(prompts("[1, 2, 3]"), (std::vector<Prompt>{std::vector<TokenId>{1, 2, 3}}));
  EXPECT_EQ(prompts("[[1], [2, 3]]"), (std::vector<Prompt>{std::vector<TokenId>{1}, std::vector<TokenId>{2, 3}}));
  EXPECT_EQ(prompts(R"([[1], "b"])"), (std::vector<Prompt>{std::vector<TokenId>{1}, "b"}));
  for (const char* bad : {"[]", "null", "5", "{}", R"([1, "a"])", "[[]]", "[1.5]", "[-1]", "[[1, null]]", "true",
                          "[2147483648]", R"(["a", 5])"}) {
    expect_refused(prompts, bad, "prompt");
  }
}

TEST(OpenAiRequest, RefusesWhatIsOutOfRange) {
  const std::pair<const char*, const char*> kBad[] = {{"temperature", "-0.1"},
                                                      {"temperature", "\"hot\""},
                                                      {"top_p", "1.1"},
                                                      {"top_p", "-1"},
                                                      {"top_k", "-2"},
                                                      {"top_k", "1.5"},
                                                      {"min_p", "2"},
                                                      {"typical_p", "0"},
                                                      {"repetition_penalty", "0"},
                                                      {"presence_penalty", "2.1"},
                                                      {"frequency_penalty", "-3"},
                                                      {"n", "0"},
                                                      {"n", "129"},
                                                      {"n", "true"},
                                                      {"max_tokens", "0"},
                                                      {"max_tokens", "-1"},
                                                      {"max_tokens", "4294967296"},
                                                      {"max_tokens", "\"5\""},
                                                      {"min_tokens", "-1"},
                                                      {"seed", "1.5"},
                                                      {"seed", "\"x\""},
                                                      {"stop", "5"},
                                                      {"stop", "[1]"},
                                                      {"stop", "\"\""},
                                                      {"stop", "[\"a\", \"\"]"},
                                                      {"stop_token_ids", "\"x\""},
                                                      {"stop_token_ids", "[-1]"},
                                                      {"logit_bias", "[]"},
                                                      {"logit_bias", "{\"x\": 1}"},
                                                      {"logit_bias", "{\"1\": 101}"},
                                                      {"logit_bias", "{\"-1\": 1}"},
                                                      {"logit_bias", "{\"1\": {}}"},
                                                      {"ignore_eos", "1"},
                                                      {"allowed_token_ids", "{}"},
                                                      {"bad_words", "[\"\"]"},
                                                      {"echo", "\"yes\""},
                                                      {"stream", "0"},
                                                      {"logprobs", "21"},
                                                      {"logprobs", "true"},
                                                      {"stream_options", "true"},
                                                      {"cache_salt", "5"},
                                                      {"model", "5"},
                                                      {"logit_bias", "{\"99999999999\": 1}"}};
  for (const auto& [param, value] : kBad) {
    expect_refused(completion, std::string(R"(, ")") + param + "\": " + value, param);
  }
  expect_refused(chat, R"(, "logprobs": 5)", "logprobs");
  expect_refused(chat, R"(, "logprobs": true, "top_logprobs": 21)", "top_logprobs");
  expect_refused(chat, R"(, "top_logprobs": 2)", "top_logprobs");
  expect_refused(completion, R"(, "stream_options": {"include_usage": 1})", "stream_options.include_usage");
  std::string many;
  for (int i = 0; i < 65; ++i) many += (i ? ", \"" : "\"") + std::to_string(i) + "\"";
  expect_refused(completion, R"(, "stop": [)" + many + "]", "stop");
  expect_refused(completion, R"(, "stop": ")" + std::string(2000, 'x') + "\"", "stop");
}

TEST(OpenAiRequest, LimitsTheChoices) {
  std::string prompts = "\"p\"";
  for (int i = 1; i < 20; ++i) prompts += ", \"p\"";
  const auto with = [&](const std::string& n) {
    return parse_request(Endpoint::kCompletions, Json::parse(R"({"prompt": [)" + prompts + R"(], "n": )" + n + "}"));
  };
  EXPECT_EQ(with("102").settings.n, 102u);
  expect_refused(with, "103", "n");
}

TEST(OpenAiRequest, IgnoresWhatItDoesNotKnow) {
  EXPECT_EQ(completion(R"(, "frobnicate": {"deep": [1, 2]}, "metadata": {"a": "b"}, "store": true, "temperature": null,
                          "stop": null, "logit_bias": null, "seed": null, "n": null, "max_tokens": null)")
                .settings.max_tokens,
            16u);
}

TEST(OpenAiRequest, RefusesWhatItCanNotDo) {
  const std::pair<const char*, const char*> kCant[] = {{"suffix", "\"end\""},
                                                       {"guided_json", "{\"type\": \"object\"}"},
                                                       {"structured_outputs", "{\"regex\": \"a\"}"},
                                                       {"use_beam_search", "true"},
                                                       {"best_of", "2"},
                                                       {"response_format", "{\"type\": \"json_object\"}"},
                                                       {"skip_special_tokens", "false"},
                                                       {"prompt_embeds", "\"AAAA\""}};
  for (const auto& [param, value] : kCant) {
    expect_refused(completion, std::string(R"(, ")") + param + "\": " + value, param);
  }
  expect_refused(chat, R"(, "tools": [{"type": "function"}])", "tools");
  expect_refused(chat, R"(, "modalities": ["text", "audio"])", "modalities");
  expect_refused(chat, R"(, "echo": true)", "echo");
  expect_refused(chat, R"(, "continue_final_message": true)", "continue_final_message");
  EXPECT_EQ(chat(R"(, "tools": [], "tool_choice": "none", "response_format": {"type": "text"}, "modalities": ["text"],
                    "skip_special_tokens": true, "best_of": 1, "guided_json": null, "functions": [])")
                .settings.n,
            1u);
}

TEST(OpenAiRequest, ReadsMessages) {
  const ApiRequest r = chat_of(R"([{"role": "developer", "content": "d"}, {"role": "assistant", "content": [
      {"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "tool_calls": []},
      {"role": "user", "content": "", "name": "n"}])");
  ASSERT_EQ(r.messages.size(), 3u);
  EXPECT_EQ(r.messages[0].role, "system");
  EXPECT_EQ(r.messages[1].content, "one\ntwo");
  EXPECT_EQ(r.messages[2].role, "user");
  EXPECT_EQ(r.messages[2].content, "");
}

TEST(OpenAiRequest, NamesTheMessageThatIsWrong) {
  const std::pair<const char*, const char*> kBad[] = {
      {R"([])", "messages"},
      {R"("hi")", "messages"},
      {R"(null)", "messages"},
      {R"(["hi"])", "messages[0].role"},
      {R"([{"content": "x"}])", "messages[0].role"},
      {R"([{"role": "user", "content": "x"}, {"role": "robot", "content": "x"}])", "messages[1].role"},
      {R"([{"role": "tool", "content": "x", "tool_call_id": "1"}])", "messages[0].role"},
      {R"([{"role": "user"}])", "messages[0].content"},
      {R"([{"role": "user", "content": 5}])", "messages[0].content"},
      {R"([{"role": "user", "content": ["x"]}])", "messages[0].content[0].type"},
      {R"([{"role": "user", "content": [{"type": "text"}]}])", "messages[0].content[0].text"},
      {R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]}])",
       "messages[0].content[1].type"},
      {R"([{"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}])", "messages[0].tool_calls"}};
  for (const auto& [messages, param] : kBad) expect_refused(chat_of, messages, param);
}

TEST(OpenAiRequest, NeedsAnObject) {
  for (const char* body : {"[]", "\"x\"", "null", "5"}) {
    EXPECT_THROW(parse_request(Endpoint::kChat, Json::parse(body)), ApiError) << body;
  }
}

TEST(ApiErrors, HaveOpenAisForm) {
  const ApiError error(404, "no such model", "model", "model_not_found");
  EXPECT_EQ(error.body(), Json::parse(R"({"error": {"message": "no such model", "type": "invalid_request_error",
                                          "param": "model", "code": "model_not_found"}})"));
  EXPECT_EQ(ApiError(500, "x").body(), Json::parse(R"({"error": {"message": "x", "type": "server_error", "param": null,
                                                       "code": null}})"));
}

// What a caller can change is his; SDKs try 5xx again.
TEST(ApiErrors, HaveTheStatusOfTheirCause) {
  EXPECT_EQ(api_error(Error(ErrorCode::kUsage, "x")).status(), 400);
  EXPECT_EQ(api_error(Error(ErrorCode::kCapacity, "x")).status(), 400);
  EXPECT_EQ(api_error(Error(ErrorCode::kCapacity, "x")).code(), "context_length_exceeded");
  EXPECT_EQ(api_error(Error(ErrorCode::kDevice, "x")).status(), 500);
  EXPECT_EQ(api_error(Error(ErrorCode::kInternal, "x")).status(), 500);
  EXPECT_EQ(generation_error(Error(ErrorCode::kCapacity, "x")).status(), 503);
  EXPECT_EQ(generation_error(Error(ErrorCode::kUsage, "x")).status(), 400);
}

}  // namespace
}  // namespace backplane::tools::openai
