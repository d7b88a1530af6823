#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/e2e/program.h"

namespace backplane::test {
namespace {

class Run : public ProgramTest {
 protected:
  // A greedy completion as JSON.
  Json greedy(std::vector<std::string> more, const ProgramInput& input = {}) const {
    std::vector<std::string> arguments = {"run", model_, "--json", "--temperature", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return backplane_json(std::move(arguments), input);
  }
};

TEST_F(Run, AnswersInTheContractsForm) {
  const Json done = greedy({"--prompt-ids", "72,105,33", "-n", "12", "--ignore-eos"});
  EXPECT_EQ(done["device"], best_device());
  EXPECT_EQ(done["prompt_ids"], Json::parse("[72, 105, 33]"));
  EXPECT_EQ(done["ids"].size(), 12u);
  EXPECT_TRUE(done["text"].is_string());
  EXPECT_EQ(done["finish_reason"], "length");
  EXPECT_EQ(done["fallbacks"], Json::array());
  EXPECT_FALSE(done.contains("steps"));
  const Json& timings = done["timings"];
  EXPECT_EQ(timings["step_s"].size(), 12u);  // one prefill, eleven decodes
  for (const char* name : {"load_s", "prefill_s", "decode_s"}) EXPECT_GT(timings[name], 0) << name;
}

// The same tokens one by one, from the logits that `score` gives.
TEST_F(Run, ChoosesTheBestTokens) {
  std::vector<int> ids = {72, 105, 33};
  const Json done = greedy({"--prompt-ids", "72,105,33", "-n", "6", "--ignore-eos"});
  for (const Json& id : done["ids"]) {
    const Json score =
        backplane_json({"score", model_, "--json"}, {.stdin_text = Json{{"ids", ids}, {"top", 1}}.dump() + "\n"});
    EXPECT_EQ(score["top"][0][0]["id"], id);
    ids.push_back(id.get<int>());
  }
}

TEST_F(Run, GivesLogProbabilities) {
  const Json done = greedy({"--prompt-ids", "72", "-n", "4", "--ignore-eos", "--top-logprobs", "3"});
  ASSERT_EQ(done["steps"].size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const Json& step = done["steps"][i];
    EXPECT_EQ(step["id"], done["ids"][i]);
    ASSERT_EQ(step["top"].size(), 3u);
    EXPECT_EQ(step["top"][0]["id"], step["id"]);  // greedy
    EXPECT_EQ(step["top"][0]["logprob"], step["logprob"]);
    EXPECT_LT(step["logprob"], 0);
    EXPECT_GE(step["top"][0]["logprob"], step["top"][1]["logprob"]);
    EXPECT_TRUE(step["top"][2]["token"].is_string());
  }
}

TEST_F(Run, RendersTheChatAndLeavesRawTextAlone) {
  const std::string chat = "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
  const Json want = backplane_json({"tokenize", model_, "--json"},
                                   {.stdin_text = Json{{"text", chat}, {"parse_special", true}}.dump() + "\n"})["ids"];
  EXPECT_EQ(greedy({"-p", "hi", "--system", "S", "-n", "1"})["prompt_ids"], want);
  EXPECT_EQ(greedy({"-p", "hi", "--raw", "-n", "1"})["prompt_ids"], Json::parse("[258]"));
  EXPECT_EQ(greedy({"-n", "1", "--raw"}, {.stdin_text = "hi\n"})["prompt_ids"], Json::parse("[258]"));
  SmallChatModel plain;
  plain.chat_template = false;
  const std::string none = write_model(plain, "none.gguf");
  EXPECT_EQ(backplane_json({"run", none, "--json", "-p", "hi", "-n", "1"})["prompt_ids"], Json::parse("[258]"));
  expect_refusal({"run", none, "--chat", "-p", "hi"}, 3, "no chat template");
}

TEST_F(Run, StreamsTheTextOfTheObject) {
  const std::vector<std::string> same = {"-p", "hi", "-n", "24", "--raw", "--seed", "5", "--temperature", "1.5"};
  std::vector<std::string> text = {"run", model_}, json = {"run", model_, "--json"};
  text.insert(text.end(), same.begin(), same.end());
  json.insert(json.end(), same.begin(), same.end());
  const ProgramRun run = backplane(text);
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.err, "");
  const Json done = backplane_json(json);
  EXPECT_EQ(run.out, done["text"].get<std::string>() + "\n");
  EXPECT_EQ(done["seed"], 5);
  EXPECT_EQ(backplane_json(json)["ids"], done["ids"]);
  json[json.size() - 3] = "6";
  EXPECT_NE(backplane_json(json)["ids"], done["ids"]);
}

TEST_F(Run, EndsBeforeAStopString) {
  const std::string text = greedy({"-p", "hi", "--raw", "-n", "40", "--ignore-eos"})["text"];
  ASSERT_GT(text.size(), 12u);
  // A piece of the text that is valid UTF-8 on its own: between two ASCII characters.
  std::size_t at = 6;
  while (at + 2 < text.size() && (text[at] & 0x80 || text[at + 1] & 0x80)) ++at;
  const std::string stop = text.substr(at, 2);
  const Json done = greedy({"-p", "hi", "--raw", "-n", "40", "--ignore-eos", "--stop", "no such text", "--stop", stop});
  EXPECT_EQ(done["finish_reason"], "stop");
  EXPECT_EQ(done["text"], text.substr(0, text.find(stop)));
}

TEST_F(Run, WorksWithoutATokenizer) {
  SmallChatModel bare;
  bare.tokenizer = false;
  const std::string model = write_model(bare, "bare.gguf");
  const Json done = backplane_json(
      {"run", model, "--json", "--prompt-ids", "1,2", "-n", "3", "--temperature", "0", "--top-logprobs", "1"});
  EXPECT_EQ(done["text"], nullptr);
  EXPECT_EQ(done["ids"].size(), 3u);
  EXPECT_EQ(done["steps"][0]["top"][0]["token"], nullptr);
  const ProgramRun text = backplane({"run", model, "--prompt-ids", "1,2", "-n", "3", "--temperature", "0"});
  EXPECT_EQ(text.status, 0);
  EXPECT_EQ(std::count(text.out.begin(), text.out.end(), ' '), 3) << text.out;
  expect_refusal({"run", model, "-p", "hi"}, 3, "no tokenizer");
}

TEST_F(Run, CountsEveryFallback) {
  const Json here = greedy({"--prompt-ids", "1,2,3", "-n", "5", "--ignore-eos"});
  const Json there =
      greedy({"--prompt-ids", "1,2,3", "-n", "5", "--ignore-eos", "--device", "template", "--fallback", "allow"});
  EXPECT_EQ(there["device"], "template:0");
  std::set<std::string> ops;
  for (const Json& entry : there["fallbacks"]) {
    EXPECT_EQ(entry["device"], "cpu:f32");
    EXPECT_FALSE(entry["reason"].get<std::string>().empty());
    EXPECT_GT(entry["count"], 0);
    ops.insert(entry["op"].get<std::string>());
  }
  EXPECT_TRUE(ops.contains("NORM"));
  EXPECT_FALSE(ops.contains("LINEAR"));
  EXPECT_EQ(there["ids"].size(), here["ids"].size());
  const ProgramRun verbose = backplane({"run", model_, "--prompt-ids", "1", "-n", "2", "--device", "template", "-v"});
  EXPECT_NE(verbose.err.find("fell back: NORM x "), std::string::npos) << verbose.err;
  expect_refusal({"run", model_, "--prompt-ids", "1", "-n", "1", "--device", "template", "--fallback", "deny"}, 4,
                 "template:0");
}

TEST_F(Run, DoesNotDependOnThreads) {
  const std::vector<std::string> more = {"--prompt-ids", "1,2,3,4,5",      "-n", "20",
                                         "--ignore-eos", "--top-logprobs", "2"};
  auto one = more, four = more;
  one.insert(one.end(), {"--threads", "1"});
  four.insert(four.end(), {"--threads", "4"});
  EXPECT_EQ(greedy(one)["steps"], greedy(four)["steps"]);
}

TEST_F(Run, EndsAtTheContext) {
  const Json done = greedy({"--prompt-ids", "1,2,3,4", "--ctx", "16", "--ignore-eos"});
  EXPECT_EQ(done["finish_reason"], "length");
  EXPECT_EQ(done["ids"].size(), 13u);  // the last one needs no place
}

TEST_F(Run, PrintsWhatThereIsWhenInterrupted) {
  const std::string model = write_model({.context = 65536}, "long.gguf");
  const ProgramInput input{.interrupt_when = [](const std::string& out) { return out.size() > 20; }};
  const ProgramRun run = backplane({"run", model, "-p", "hi", "--raw", "-n", "60000", "--ignore-eos"}, input);
  EXPECT_EQ(run.status, 130);
  EXPECT_GT(run.out.size(), 20u);
  EXPECT_TRUE(run.out.ends_with('\n'));
  EXPECT_NE(run.err.find("backplane: error: interrupted: after "), std::string::npos) << run.err;
}

}  // namespace
}  // namespace backplane::test
