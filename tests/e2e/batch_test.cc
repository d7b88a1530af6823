// backplane batch: files of requests in, files of results out.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <set>
#include <thread>

#include "tests/e2e/batch_fixture.h"

namespace backplane::test {
namespace {

TEST_F(Batch, AnswersAsRunDoes) {
  std::string requests;
  for (int i = 0; i < 8; ++i) {
    requests += chat(numbered("chat ", i),
                     {{"max_tokens", 5 + 3 * i},
                      {"temperature", 0},
                      {"logprobs", true},
                      {"top_logprobs", 2},
                      {"return_token_ids", true}},
                     numbered("number ", i));
    requests += completion(numbered("raw ", i), {{"prompt", numbered("text ", i)},
                                                 {"max_tokens", 30 - 3 * i},
                                                 {"temperature", 0.9},
                                                 {"seed", i},
                                                 {"logprobs", 1},
                                                 {"return_token_ids", true}});
  }
  const auto got = run(requests, {"--max-running", "5"});
  ASSERT_EQ(got.size(), 16u);
  for (int i = 0; i < 8; ++i) {
    const std::string n = std::to_string(i);
    const Json& reply = body_of(got.at("chat " + n));
    const Json chatted = backplane_json({"run", model_, "--json", "-p", "number " + n, "-n", std::to_string(5 + 3 * i),
                                         "--temperature", "0", "--top-logprobs", "2"});
    EXPECT_EQ(reply["choices"][0]["message"]["content"], chatted["text"]);
    EXPECT_EQ(reply["choices"][0]["token_ids"], chatted["ids"]);
    EXPECT_EQ(reply["choices"][0]["finish_reason"], chatted["finish_reason"]);
    EXPECT_EQ(reply["usage"]["prompt_tokens"], chatted["prompt_ids"].size());
    const Json& content = reply["choices"][0]["logprobs"]["content"];
    ASSERT_EQ(content.size(), chatted["steps"].size());
    for (std::size_t t = 0; t < content.size(); ++t) {
      EXPECT_EQ(content[t]["logprob"], chatted["steps"][t]["logprob"]);
      EXPECT_EQ(content[t]["top_logprobs"][1]["logprob"], chatted["steps"][t]["top"][1]["logprob"]);
    }
    const Json& text = body_of(got.at("raw " + n));
    const Json completed =
        backplane_json({"run", model_, "--json", "--raw", "-p", "text " + n, "-n", std::to_string(30 - 3 * i),
                        "--temperature", "0.9", "--seed", n, "--top-k", "0", "--top-p", "1", "--min-p", "0"});
    EXPECT_EQ(text["choices"][0]["text"], completed["text"]);
    EXPECT_EQ(text["choices"][0]["token_ids"], completed["ids"]);
    EXPECT_EQ(text["usage"]["completion_tokens"], completed["ids"].size());
  }
}

TEST_F(Batch, GivesSeveralChoicesAndPrompts) {
  const Json body = {{"prompt", {"ab", "cd"}}, {"n", 3}, {"max_tokens", 12}, {"seed", 5}, {"ignore_eos", true}};
  const auto got = run(completion("many", body) + chat("one", {{"n", 2}, {"max_tokens", 3}}));
  const Json& choices = body_of(got.at("many"))["choices"];
  ASSERT_EQ(choices.size(), 6u);
  std::set<Json> texts;
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(choices[i]["index"], i);
    texts.insert(choices[i]["text"]);
  }
  EXPECT_EQ(texts.size(), 6u);  // at temperature 1 each draws its own
  EXPECT_EQ(body_of(got.at("many"))["usage"], Json::parse(R"({"prompt_tokens": 4, "completion_tokens": 72,
                                                              "total_tokens": 76})"));
  EXPECT_EQ(body_of(got.at("one"))["choices"].size(), 2u);
}

// What was generated, given back as a prompt, has the probabilities that it was generated with.
TEST_F(Batch, ScoresPrompts) {
  const Json body = {
      {"prompt", "hi"}, {"max_tokens", 8}, {"logprobs", 2}, {"ignore_eos", true}, {"return_token_ids", true}};
  const Json made = body_of(run(completion("a", body)).at("a"))["choices"][0];
  Json ids = made["prompt_token_ids"];
  const std::size_t prompt = ids.size();
  ids.insert(ids.end(), made["token_ids"].begin(), made["token_ids"].end());
  const Json again = {{"prompt", {ids, ids}}, {"max_tokens", 0}, {"logprobs", 2}, {"echo", true}};
  const Json scored = body_of(run(completion("b", again)).at("b"));
  ASSERT_EQ(scored["choices"].size(), 2u);
  for (const Json& choice : scored["choices"]) {
    const Json& logprobs = choice["logprobs"];
    ASSERT_EQ(logprobs["tokens"].size(), prompt + 8);
    EXPECT_EQ(logprobs["token_logprobs"][0], nullptr);
    for (std::size_t i = 0; i < 8; ++i) {
      for (const char* key : {"tokens", "token_logprobs", "top_logprobs"}) {
        EXPECT_EQ(logprobs[key][prompt + i], made["logprobs"][key][i]) << key << i;
      }
    }
  }
  EXPECT_EQ(scored["usage"]["completion_tokens"], 0);
}

TEST_F(Batch, ABadLineHarmsNoNeighbor) {
  std::string requests;
  const std::vector<std::string> bad = {"{\n",
                                        "\x01\xFF\n",
                                        "[1, 2]\n",
                                        "{\"custom_id\": \"no url\"}\n",
                                        request("elsewhere", "/v1/embeddings", {{"input", "x"}}),
                                        chat("hot", {{"temperature", -1}}),
                                        chat("streamed", {{"stream", true}}),
                                        completion("vocabulary", {{"prompt", {5, 100000}}}),
                                        completion("bias", {{"prompt", "x"}, {"logit_bias", {{"100000", 1}}}}),
                                        completion("long", {{"prompt", std::string(300, 'x')}}),
                                        completion("nothing", {{"prompt", ""}}),
                                        completion("one of two", {{"prompt", Json::array({"good", ""})}}),
                                        std::string(1000, '[') + "\n"};
  const Json good = {{"max_tokens", 9}, {"temperature", 0}};
  for (std::size_t i = 0; i < bad.size(); ++i)
    requests += chat(std::to_string(i), good, std::to_string(i)) + bad[i] + "\n";
  std::string alone;
  for (std::size_t i = 0; i < bad.size(); ++i) alone += chat(std::to_string(i), good, std::to_string(i));
  const auto want = answers(run(alone));
  std::filesystem::remove(results_path());
  const ProgramRun done = backplane(arguments(requests));
  EXPECT_EQ(done.status, 0);
  EXPECT_NE(done.err.find("13 done, 13 failed"), std::string::npos) << done.err;

  auto by_id = results();
  EXPECT_EQ(by_id.size(), 26u);
  for (const char* line : {"line 2", "line 5", "line 8", "line 38"}) {
    const Json& error = by_id[line]["error"];
    EXPECT_EQ(error["code"], "invalid_json_line");
    EXPECT_TRUE(error["message"].get<std::string>().starts_with(line)) << error;
  }
  for (const auto& [id, answer] : want) EXPECT_EQ(answers(by_id)[id], answer);
  EXPECT_EQ(by_id["no url"]["error"]["code"], "invalid_url");
  EXPECT_EQ(by_id["elsewhere"]["error"]["code"], "invalid_url");
  for (const char* id : {"hot", "streamed", "vocabulary", "bias", "long", "nothing", "one of two"}) {
    EXPECT_EQ(by_id[id]["error"], nullptr);
    EXPECT_EQ(by_id[id]["response"]["status_code"], 400) << id;
    EXPECT_EQ(by_id[id]["response"]["body"]["error"]["type"], "invalid_request_error") << id;
  }
  EXPECT_EQ(by_id["long"]["response"]["body"]["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(by_id["hot"]["response"]["body"]["error"]["param"], "temperature");
}

TEST_F(Batch, ACustomIdCountsOnce) {
  const Json body = {{"max_tokens", 3}};
  const std::string requests = chat("a", body) + chat("a", body, "other") + chat("b", body) + chat("a", body) + "{\n";
  for (int time = 0; time < 2; ++time) {  // the second finds all done
    EXPECT_EQ(backplane(arguments(requests)).status, 0);
    std::multiset<std::string> seen;
    for (const Json& result : parse_lines(read_file(results_path()))) {
      const Json& error = result["error"];
      seen.insert(result["custom_id"].dump() + " " +
                  (error.is_null() ? "ok" : error["code"].get<std::string>() + error["line"].dump()));
    }
    EXPECT_EQ(seen, (std::multiset<std::string>{"\"a\" duplicate_custom_id2", "\"a\" duplicate_custom_id4", "\"a\" ok",
                                                "\"b\" ok", "null invalid_json_line5"}));
  }
}

// Without a seed of their own, too, requests get the same answers at every start.
TEST_F(Batch, ReadsAndWritesPipes) {
  const std::string requests = chat("a", {{"max_tokens", 3}}) + completion("b", {{"prompt", "x"}, {"max_tokens", 2}});
  const ProgramRun done = backplane({"batch", model_, "-i", "-", "-o", "-"}, {.stdin_text = requests});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(done.err, "");
  folder_.write("results.jsonl", done.out);
  EXPECT_EQ(answers(results()), answers(run(requests)));
}

// The first result is there although the next request has not come yet.
TEST_F(Batch, DoesNotWaitForTheInputsEnd) {
  const std::string pipe = (folder_.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::atomic<bool> first_came = false;
  std::thread writer([&] {
    std::ofstream out(pipe, std::ios::binary);
    out << chat("a", {{"max_tokens", 3}}) << std::flush;
    for (int i = 0; i < 6000 && !first_came; ++i) {
      first_came = count_lines(results_path()) == 1;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    out << chat("b", {{"max_tokens", 3}});
  });
  const ProgramRun done = backplane({"batch", model_, "-i", pipe, "-o", results_path()});
  writer.join();
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_TRUE(first_came);
  EXPECT_EQ(results().size(), 2u);
}

TEST_F(Batch, SumsUp) {
  const std::string requests = chat("a", {{"max_tokens", 3}, {"ignore_eos", true}}) + "{\n" + "\n  \n";
  const Json done = backplane_json(arguments(requests, {"--json"}));
  EXPECT_EQ(done["completed"], 1);
  EXPECT_EQ(done["failed"], 1);
  EXPECT_EQ(done["skipped"], 0);
  EXPECT_EQ(done["usage"]["completion_tokens"], 3);
  EXPECT_EQ(done["device"], best_device());
  EXPECT_GT(done["steps"], 0);
  const Json again = backplane_json(arguments(requests, {"--json"}));
  EXPECT_EQ(again["completed"], 0);
  EXPECT_EQ(again["skipped"], 2);
  EXPECT_EQ(again["kept"], 2);
}

TEST_F(Batch, AnEmptyFileIsDoneAtOnce) {
  for (const char* nothing : {"", "\n", " \r\n\n"}) EXPECT_TRUE(run(nothing).empty());
  EXPECT_TRUE(std::filesystem::exists(results_path()));
}

TEST_F(Batch, TakesAByteOrderMark) { EXPECT_EQ(run("\xEF\xBB\xBF" + chat("a", {{"max_tokens", 2}})).count("a"), 1u); }

TEST_F(Batch, AnswersDoNotDependOnTheirCompany) {
  std::string requests;
  for (int i = 0; i < 20; ++i) {
    requests += completion(numbered("r", i), {{"prompt", std::string(1 + static_cast<std::size_t>(i) * 5, 'a')},
                                              {"max_tokens", 40},
                                              {"logprobs", 2},
                                              {"ignore_eos", true}});
  }
  const auto alone = answers(run(requests, {"--max-running", "1"}));
  EXPECT_EQ(answers(run(requests, {"--max-running", "16", "--step-tokens", "16"})), alone);
  EXPECT_EQ(answers(run(requests, {"--kv-tokens", "150"})), alone);
  EXPECT_NE(answers(run(requests, {"--seed", "1"})), alone);
}

TEST_F(Batch, RefusesWhatTheCacheCanNotHold) {
  const auto got = run(completion("small", {{"prompt", "x"}, {"max_tokens", 20}}) +
                           completion("large", {{"prompt", "x"}, {"max_tokens", 60}}),
                       {"--kv-tokens", "32"});
  EXPECT_EQ(got.at("small")["response"]["status_code"], 200);
  EXPECT_EQ(got.at("large")["response"]["body"]["error"]["code"], "context_length_exceeded");
}

TEST_F(Batch, KnowsItsModelsName) {
  const std::string requests = chat("a", {{"model", "x"}, {"max_tokens", 1}}) + chat("b", {{"max_tokens", 1}});
  const auto any = run(requests);
  EXPECT_EQ(body_of(any.at("a"))["model"], "x");
  EXPECT_EQ(body_of(any.at("b"))["model"], model_);
  const auto named = run(requests, {"--model-name", "y"});
  EXPECT_EQ(named.at("a")["response"]["status_code"], 404);
  EXPECT_EQ(named.at("a")["response"]["body"]["error"]["code"], "model_not_found");
  EXPECT_EQ(body_of(named.at("b"))["model"], "y");
}

TEST_F(Batch, RefusesWrongUse) {
  const std::string in = input(chat("a", {{"max_tokens", 1}}));
  const std::string out = results_path();
  expect_refusal({"batch", model_}, 2, "--input is required");
  expect_refusal({"batch", model_, "-i", in}, 2, "--output is required");
  expect_refusal({"batch", model_, "-i", in, "-o", "-", "--json"}, 2, "-o");
  expect_refusal({"batch", model_, "-i", in + "x", "-o", out, "--json"}, 3, "can't read the requests");
  expect_refusal({"batch", model_, "-i", folder_.path().string(), "-o", out}, 3, "folder");
  expect_refusal({"batch", model_, "-i", in, "-o", out + "/x"}, 3, "can't keep results there");
  expect_refusal({"batch", model_, "-i", in, "-o", in}, 3, "is no result of a batch");
  const std::string empty = folder_.write("empty", "").string();
  expect_refusal({"batch", model_, "-i", empty, "-o", empty}, 2, "the same file");
  expect_refusal({"batch", model_, "-i", in, "-o", "/dev/full"}, 5, "No space left");
  expect_refusal({"batch", model_, "-i", in, "-o", out, "--max-running", "0"}, 2, "--max-running");
  expect_refusal({"batch", model_, "-i", in, "-o", out, "--step-tokens", "5"}, 2, "--step-tokens");
  expect_refusal({"batch", model_, "-i", in, "-o", out, "--kv-tokens", "0"}, 2, "--kv-tokens");
  EXPECT_EQ(read_file(in), chat("a", {{"max_tokens", 1}}));
}

// https://github.com/sgl-project/sglang/issues/5984: filters made log-probabilities minus infinity, which is no JSON.
TEST_F(Batch, LogprobsAreNumbersWhateverTheFilters) {
  const Json one = {{"prompt", "x"}, {"max_tokens", 4}, {"temperature", 1}, {"top_k", 1}, {"logprobs", 5}};
  const Json few = {{"prompt", "x"}, {"max_tokens", 4}, {"logit_bias", {{"65", 100}}}, {"logprobs", 5}};
  const auto got = run(completion("one", one) + completion("few", few) +
                       chat("chat", {{"max_tokens", 4}, {"top_k", 1}, {"logprobs", true}, {"top_logprobs", 5}}));
  for (const char* id : {"one", "few"}) {
    const Json& logprobs = body_of(got.at(id))["choices"][0]["logprobs"];
    ASSERT_GE(logprobs["top_logprobs"].size(), 1u);
    for (const Json& top : logprobs["top_logprobs"]) {
      EXPECT_GE(top.size(), 5u);
      for (const auto& [token, logprob] : top.items()) EXPECT_TRUE(logprob.is_number()) << token;
    }
    for (const Json& logprob : logprobs["token_logprobs"]) EXPECT_TRUE(logprob.is_number());
  }
  for (const Json& token : body_of(got.at("chat"))["choices"][0]["logprobs"]["content"]) {
    EXPECT_TRUE(token["logprob"].is_number());
    ASSERT_EQ(token["top_logprobs"].size(), 5u);
    for (const Json& top : token["top_logprobs"]) EXPECT_TRUE(top["logprob"].is_number());
  }
}

}  // namespace
}  // namespace backplane::test
