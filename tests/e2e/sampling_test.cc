// The options of `run` that say how tokens are chosen.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/e2e/program.h"

namespace backplane::test {
namespace {

using Strings = std::vector<std::string>;

class RunSampling : public ProgramTest {
 protected:
  Strings command(const Strings& more, const std::string& tokens = "8") const {
    Strings arguments = {"run", model_, "--raw", "-p", "hi", "-n", tokens};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  Json json(Strings more, const std::string& tokens = "8") const {
    more.emplace_back("--json");
    return backplane_json(command(more, tokens));
  }
  // What it says when its best token is always "A", then "B", then "C".
  std::string abc(const Strings& more) const {
    Strings all = {"--temperature", "0", "--logit-bias", "65=100", "--logit-bias", "66=50", "--logit-bias", "67=25"};
    all.insert(all.end(), more.begin(), more.end());
    return json(all)["text"];
  }
};

TEST_F(RunSampling, GivesSeveralAnswers) {
  const Strings sampling = {"--seed", "5", "--temperature", "1.5", "--top-logprobs", "1"};
  Strings three = sampling;
  three.insert(three.end(), {"--n", "3"});
  const Json done = json(three);
  ASSERT_EQ(done["choices"].size(), 3u);
  for (const char* name : {"ids", "text", "finish_reason", "steps"}) EXPECT_FALSE(done.contains(name)) << name;
  for (std::size_t i = 0; i < 3; ++i) {
    const Json& choice = done["choices"][i];
    EXPECT_EQ(choice["index"], i);
    EXPECT_EQ(choice["finish_reason"], choice["ids"].size() == 8 ? "length" : "stop");
    EXPECT_EQ(choice["steps"].size(), choice["ids"].size());
    for (std::size_t other = 0; other < i; ++other) EXPECT_NE(choice["ids"], done["choices"][other]["ids"]);
  }
  const Json one = json(sampling);
  EXPECT_FALSE(one.contains("choices"));
  for (const char* name : {"ids", "text", "finish_reason", "steps"}) EXPECT_EQ(done["choices"][0][name], one[name]);
  const ProgramRun text = backplane(command({"--seed", "5", "--temperature", "1.5", "--n", "2"}));
  EXPECT_EQ(text.out, "[1]\n" + done["choices"][0]["text"].get<std::string>() + "\n[2]\n" +
                          done["choices"][1]["text"].get<std::string>() + "\n");
}

// Against the logits that `score` gives.
TEST_F(RunSampling, GivesThePromptsLogprobs) {
  const Json done = backplane_json({"run", model_, "--json", "--prompt-ids", "72,105,33,9", "-n", "2",
                                    "--prompt-logprobs", "2", "--logit-bias", "7=50"});
  const Json score = backplane_json({"score", model_, "--json"},
                                    {.stdin_text = Json{{"ids", {72, 105, 33, 9}}, {"positions", "all"}}.dump()});
  const Json& steps = done["prompt_logprobs"];
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_EQ(steps[0], Json::parse(R"({"id": 72, "logprob": null, "top": []})"));
  for (std::size_t i = 1; i < 4; ++i) {
    const auto logits = score["logits"][i - 1].get<std::vector<double>>();
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit);
    EXPECT_EQ(steps[i]["id"], done["prompt_ids"][i]);
    EXPECT_NEAR(steps[i]["logprob"], logits[done["prompt_ids"][i].get<std::size_t>()] - std::log(sum), 1e-6);
    ASSERT_EQ(steps[i]["top"].size(), 2u);
    EXPECT_EQ(steps[i]["top"][0]["id"], std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
}

TEST_F(RunSampling, EachOptionDoesItsPart) {
  EXPECT_EQ(abc({}), "AAAAAAAA");
  EXPECT_EQ(abc({"--logit-bias", "90=-100"}), "AAAAAAAA");
  EXPECT_EQ(abc({"--bad-word", "A"}), "BBBBBBBB");
  EXPECT_EQ(abc({"--bad-word", "AA"}), "ABABABAB");
  EXPECT_EQ(abc({"--repetition-penalty", "3"}), "ABAAAAAA");  // 100, 50, then 33
  EXPECT_EQ(abc({"--stop", "AAA"}), "");
  EXPECT_EQ(abc({"--stop", "AAA", "--include-stop"}), "AAA");
  EXPECT_EQ(abc({"--stop", "AAA", "--min-tokens", "5"}), "AAA");
  EXPECT_EQ(abc({"--stop-id", "66", "--bad-word", "AA"}), "A");
  EXPECT_EQ(abc({"--stop-id", "65", "--min-tokens", "3"}), "BBB");
  EXPECT_EQ(abc({"--stop-id", "65,66", "--min-tokens", "3"}), "CCC");
}

TEST_F(RunSampling, PenaltiesAndTypicalReachTheSampler) {
  const auto ids = [&](const Strings& more) {
    Strings all = {"--seed", "3", "--temperature", "1", "--top-k", "0", "--top-p", "1", "--min-p", "0", "--ignore-eos"};
    all.insert(all.end(), more.begin(), more.end());
    return json(all)["ids"];
  };
  EXPECT_NE(ids({"--typical", "0.01"}), ids({}));
  EXPECT_EQ(ids({"--typical", "1"}), ids({}));
  const auto counts = [&](const Strings& more) {
    Strings all = {"--temperature", "0", "--logit-bias", "65=50", "--logit-bias", "66=50", "--ignore-eos"};
    all.insert(all.end(), more.begin(), more.end());
    const std::string text = json(all, "100")["text"];
    return std::pair(std::count(text.begin(), text.end(), 'A'), std::count(text.begin(), text.end(), 'B'));
  };
  const auto [a, b] = counts({"--frequency-penalty", "2"});  // the more of one, the more of the other
  EXPECT_GT(a, 10);
  EXPECT_GT(b, 10);
  EXPECT_EQ(counts({"--presence-penalty", "0"}), counts({}));
  EXPECT_EQ(json({"--temperature", "0", "--presence-penalty", "2", "--logit-bias", "65=100"})["text"], "AAAAAAAA");
}

TEST_F(RunSampling, RefusesByName) {
  const auto refuses = [&](const Strings& more, const std::string& part) { expect_refusal(command(more), 2, part); };
  for (const char* bad : {"nan", "inf", "-1"}) refuses({"--temperature", bad}, "temperature can't be");
  for (const char* bad : {"nan", "1.5", "-0.1"}) {
    refuses({"--top-p", bad}, "top_p can't be");
    refuses({"--min-p", bad}, "min_p can't be");
    refuses({"--typical", bad}, "typical_p can't be");
  }
  refuses({"--typical", "0"}, "above 0 and up to 1");
  for (const char* bad : {"0", "-1", "nan", "inf"})
    refuses({"--repetition-penalty", bad}, "repetition_penalty can't be");
  for (const char* bad : {"2.5", "-3", "nan"}) {
    refuses({"--presence-penalty", bad}, "presence_penalty can't be");
    refuses({"--frequency-penalty", bad}, "from -2 to 2");
  }
  for (const char* bad : {"", "5", "5=", "=5", "5=x", "x=5", "5=1 ", "5 = 1", "99999999999=1"}) {
    refuses({"--logit-bias", bad}, "not a token id and a bias");
  }
  for (const char* bad : {"5=101", "5=nan", "5=-inf"}) refuses({"--logit-bias", bad}, "from -100 to 100");
  refuses({"--logit-bias", "5=1", "--logit-bias", "5=2"}, "a bias already");
  refuses({"--logit-bias", "259=1"}, "logit_bias has no token 259");
  refuses({"--logit-bias", "-1=1"}, "logit_bias has no token -1");
  refuses({"--bad-word", ""}, "--bad-word");
  refuses({"--stop-id", "259"}, "stop ids has no token 259");
  refuses({"--stop-id", "x"}, "not a token id: x");
  refuses({"--stop", "\x9F"}, "UTF-8");
  refuses({"--min-tokens", "9"}, "min_tokens can't be 9, more than max_tokens 8");
  refuses({"--n", "0"}, "n can't be 0");
  refuses({"--n", "129"}, "1 to 128");
  refuses({"--prompt-logprobs", "1"}, "--json");
  refuses({"--prompt-logprobs", "1001", "--json"}, "--prompt-logprobs");
}

}  // namespace
}  // namespace backplane::test
