#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tests/e2e/program.h"

namespace backplane::test {
namespace {

class Score : public ProgramTest {
 protected:
  std::vector<Json> score(const std::vector<Json>& rows, std::vector<std::string> more = {}, int status = 0) const {
    std::vector<std::string> arguments = {"score", model_, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::string input;
    for (const Json& row : rows) input += row.dump() + "\n";
    return backplane_lines(std::move(arguments), {.stdin_text = input}, status);
  }
};

Json line(int first, int count, const Json& positions) {
  Json ids = Json::array();
  for (int i = 0; i < count; ++i) ids.push_back((first + 7 * i) % 250);
  return {{"ids", ids}, {"positions", positions}};
}

TEST_F(Score, GivesWholeRows) {
  const auto out = score({line(1, 5, "last"), line(2, 4, "all"), line(3, 6, Json::array({1, 4}))});
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[0]["positions"], Json::array({4}));
  EXPECT_EQ(out[1]["positions"], Json::array({0, 1, 2, 3}));
  EXPECT_EQ(out[2]["positions"], Json::array({1, 4}));
  EXPECT_EQ(out[2]["logits"].size(), 2u);
  EXPECT_EQ(out[2]["logits"][0].size(), std::size_t{kSmallVocabulary});
  EXPECT_EQ(out[1]["steps"].size(), 1u);
  EXPECT_EQ(out[1]["steps"][0]["tokens"], 4);
  EXPECT_EQ(out[1]["steps"][0]["rows"], 4);
  EXPECT_EQ(out[1]["steps"][0]["sequences"], 1);
}

TEST_F(Score, GivesTheSameBitsInChunksAndTogether) {
  const std::vector<Json> rows = {line(1, 40, Json::array({0, 17, 39})), line(9, 23, "all"), line(5, 1, "last")};
  const auto whole = score(rows);
  for (const int chunk : {1, 3, 16, 1000}) {
    const auto chunked = score(rows, {"--chunk", std::to_string(chunk)});
    ASSERT_EQ(chunked.size(), rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(chunked[i]["logits"], whole[i]["logits"]) << chunk;
      const int tokens = static_cast<int>(rows[i]["ids"].size());
      EXPECT_EQ(chunked[i]["steps"].size(), static_cast<std::size_t>((tokens + chunk - 1) / chunk));
      int sum = 0;
      for (const Json& step : chunked[i]["steps"]) sum += step["tokens"].get<int>();
      EXPECT_EQ(sum, tokens);
    }
  }
  const auto together = score(rows, {"--together"});
  ASSERT_EQ(together.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(together[i]["logits"], whole[i]["logits"]);
    ASSERT_EQ(together[i]["steps"].size(), 1u);
    EXPECT_EQ(together[i]["steps"][0]["sequences"], 3);
    EXPECT_EQ(together[i]["steps"][0]["tokens"], 64);
  }
}

// Chunks of one token and whole texts take other kernels there, unless the same bits were asked for.
TEST_F(Score, GivesTheSameBitsOnAGpuThatWasAskedForThem) {
  const std::string plugin = BACKPLANE_FAKE_PLUGINS "/cuda_emulated/backplane_cuda_emulated.so";
  if (!std::filesystem::exists(plugin)) GTEST_SKIP() << "not built";
  const std::vector<Json> rows = {line(1, 40, Json::array({0, 17, 39})), line(9, 23, "last")};
  for (const char* device : {"cuda_emulated:0", "cuda_emulated:0-bf16"}) {
    const auto logits = [&](std::vector<std::string> more) {
      more.insert(more.end(), {"--plugin", plugin, "--device", device, "--fallback", "deny"});
      Json all = Json::array();
      for (const Json& row : score(rows, std::move(more))) all.push_back(row["logits"]);
      return all;
    };
    const Json whole = logits({"--deterministic"});
    EXPECT_EQ(logits({"--deterministic", "--chunk", "1"}), whole) << device;
    EXPECT_EQ(logits({"--deterministic", "--chunk", "11"}), whole) << device;
    EXPECT_EQ(logits({"--deterministic", "--together"}), whole) << device;
    EXPECT_NE(logits({"--chunk", "1"}), logits({})) << device << ": nothing had to be asked for";
  }
}

TEST_F(Score, GivesTheBestOnly) {
  Json row = line(1, 5, "last");
  const auto logits = score({row}).at(0)["logits"][0].get<std::vector<float>>();
  row["top"] = 3;
  const Json out = score({row}).at(0);
  EXPECT_FALSE(out.contains("logits"));
  const Json& top = out["top"][0];
  ASSERT_EQ(top.size(), 3u);
  for (const Json& each : top) EXPECT_EQ(each["logit"].get<float>(), logits[each["id"].get<std::size_t>()]);
  EXPECT_EQ(top[0]["logit"].get<float>(), *std::max_element(logits.begin(), logits.end()));
  EXPECT_GE(top[1]["logit"], top[2]["logit"]);
}

TEST_F(Score, KeepsTheBitsOfDoubles) {
  const auto single = score({line(1, 9, "last")}).at(0)["logits"][0].get<std::vector<double>>();
  const auto twice = score({line(1, 9, "last")}, {"--device", "cpu:f64"}).at(0)["logits"][0].get<std::vector<double>>();
  int wider = 0;
  for (std::size_t i = 0; i < twice.size(); ++i) {
    EXPECT_NEAR(single[i], twice[i], 1e-4);
    wider += static_cast<double>(static_cast<float>(twice[i])) != twice[i] ? 1 : 0;
  }
  EXPECT_GT(wider, 200);
}

TEST_F(Score, AnswersABadLineInItsPlace) {
  const auto out = score({line(1, 3, "last"), Json{{"ids", {259}}}, Json{{"ids", {1}}, {"positions", {1}}},
                          Json{{"ids", Json::array()}}, Json{{"ids", {1}}, {"positions", "first"}}, line(2, 2, "last")},
                         {}, 2);
  ASSERT_EQ(out.size(), 6u);
  for (const int bad : {1, 2, 3, 4}) EXPECT_EQ(out[bad]["error"]["code"], "usage") << out[bad];
  EXPECT_EQ(out[0]["logits"].size(), 1u);
  EXPECT_EQ(out[5]["logits"].size(), 1u);
}

// The perplexity from the logits of each window, as the contract defines it.
TEST_F(Score, MeasuresATextByTheSecondHalves) {
  const std::string text = "hi there, this is a text of some length!";
  const std::string file = folder_.write("text", text).string();
  const Json got = backplane_json({"score", model_, "--text", file, "--context", "16", "--json"});
  const auto ids = backplane_json({"tokenize", model_, "--json"}, {.stdin_text = Json{{"text", text}}.dump()})["ids"]
                       .get<std::vector<int>>();
  double nll = 0;
  int tokens = 0;
  for (std::size_t begin = 0; begin < ids.size(); begin += 16) {
    const std::vector<int> window(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                  ids.begin() + static_cast<std::ptrdiff_t>(std::min(begin + 16, ids.size())));
    const auto rows = score({Json{{"ids", window}, {"positions", "all"}}}).at(0)["logits"];
    for (std::size_t i = std::max<std::size_t>(1, window.size() / 2); i < window.size(); ++i) {
      const auto logits = rows[i - 1].get<std::vector<double>>();
      double sum = 0;
      for (const double logit : logits) sum += std::exp(logit);
      nll += std::log(sum) - logits[static_cast<std::size_t>(window[i])];
      ++tokens;
    }
  }
  EXPECT_EQ(got["tokens"], tokens);
  EXPECT_NEAR(got["nll"].get<double>(), nll, 1e-3);
  EXPECT_NEAR(got["perplexity"].get<double>(), std::exp(nll / tokens), 1e-2);
  EXPECT_NE(backplane({"score", model_, "--text", file}).out.find("perplexity "), std::string::npos);
}

}  // namespace
}  // namespace backplane::test
