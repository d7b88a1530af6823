#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/e2e/lab_page.h"
#include "tests/e2e/program.h"
#include "tests/support/well_formed.h"

namespace backplane::test {
namespace {

const std::vector<std::string> kExperiments = {"cache", "phases", "context", "padding", "logits", "batching"};

class Lab : public ProgramTest {
 protected:
  std::vector<std::string> arguments(std::vector<std::string> more = {}) const {
    std::vector<std::string> all = {"lab", model_, "--quick"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(Lab, MeasuresEveryExperiment) {
  const Json report = backplane_json(arguments({"--json", "--device", "cpu:f32"}));
  EXPECT_EQ(report["device"], "cpu:f32");
  EXPECT_EQ(report["model"]["layers"], 2);
  EXPECT_EQ(report["model"]["vocabulary"], kSmallVocabulary);
  EXPECT_EQ(report["context"], 256);
  EXPECT_TRUE(report["fallbacks"].empty());
  for (const std::string& id : kExperiments) {
    ASSERT_FALSE(report["experiments"][id].contains("skipped")) << report["experiments"][id];
    EXPECT_FALSE(report["experiments"][id]["findings"].empty());
  }
  const Json& experiments = report["experiments"];
  const Json& cache = experiments["cache"];
  EXPECT_EQ(cache["equal_tokens"], true);  // law 4, on the CPU
  const auto prompt = cache["prompt_tokens"].get<int>(), tokens = cache["generated_tokens"].get<int>();
  EXPECT_EQ(cache["ids"].size(), static_cast<std::size_t>(tokens));
  EXPECT_EQ(cache["with"]["computed_tokens"], prompt + tokens - 1);
  EXPECT_EQ(cache["without"]["computed_tokens"], tokens * prompt + tokens * (tokens - 1) / 2);
  EXPECT_EQ(experiments["padding"]["equal_tokens"], true);
  EXPECT_EQ(experiments["padding"]["padded"]["computed_tokens"],
            experiments["padding"]["rows"].get<int>() * experiments["padding"]["longest"].get<int>());
  EXPECT_LT(experiments["padding"]["ragged"]["computed_tokens"], experiments["padding"]["padded"]["computed_tokens"]);
  EXPECT_EQ(experiments["logits"]["same_last_row"], true);
  const Json& batching = experiments["batching"];
  EXPECT_EQ(batching["equal_tokens"], true);
  EXPECT_EQ(batching["none"]["mean_occupancy"], 1);
  for (const char* way : {"static", "continuous"}) {
    EXPECT_GE(batching[way]["mean_occupancy"], 1);
    EXPECT_LE(batching[way]["mean_occupancy"], batching["seats"]);
    EXPECT_EQ(batching[way]["occupancy"].back()["sequences"], 0);
  }
  EXPECT_LT(experiments["phases"]["decode"]["intensity"], experiments["phases"]["prefill"].back()["intensity"]);
  EXPECT_EQ(experiments["context"]["kv_bytes_per_token"], 2 * 2 * (8 + 8) * 4);
}

TEST_F(Lab, WritesAPageWithTheFindingsOfTheReport) {
  const std::string folder = (folder_.path() / "deep" / "out").string();
  const ProgramRun run = backplane(arguments({"--out", folder}));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.out.find("6. No batching, static batching, continuous batching"), run.out.npos) << run.out;
  EXPECT_NE(run.out.find("lab.html"), run.out.npos);
  const Json report = Json::parse(read_file(folder + "/lab.json"));
  const std::string page = read_file(folder + "/lab.html");
  std::vector<std::string> said;
  for (std::string item : all_between(page, "<li>", "</li>")) {
    for (std::size_t at; (at = item.find("\u00a0")) != item.npos;)
      item = item.substr(0, at) + " " + item.substr(at + 2);
    said.push_back(unescaped(item));
  }
  for (const std::string& id : kExperiments) {
    for (const std::string finding : report["experiments"][id]["findings"]) {
      if (finding.find('`') != finding.npos) continue;  // code, on the page
      EXPECT_EQ(std::count(said.begin(), said.end(), finding), 1) << finding;
    }
  }
  EXPECT_EQ(XmlCheck::fault(page), "");
  for (const char* external : {"http://", "https://", "src=", "url(", "@import", "<script"}) {
    EXPECT_EQ(page.find(external), page.npos) << external;
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 2);  // nothing else is left there
}

TEST_F(Lab, ServesAGivenTrace) {
  std::string trace = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  for (int i = 0; i < 8; ++i) {
    trace += "2023-11-16 18:17:0" + std::to_string(i) + ".5," + std::to_string(100 * i + 3) + ",20\n";
  }
  const std::string file = folder_.write("requests.csv", trace).string();
  const Json batching = backplane_json(arguments({"--json", "--trace", file}))["experiments"]["batching"];
  EXPECT_NE(batching["trace"].get<std::string>().find("requests.csv"), std::string::npos);
  EXPECT_EQ(batching["requests"][0]["arrival_s"], 0);
  EXPECT_EQ(batching["equal_tokens"], true);
  expect_refusal(arguments({"--trace", model_, "--json"}), 3, "not a request trace");
  expect_refusal(arguments({"--trace", "/no/such.csv"}), 3, "/no/such.csv");
}

// The template plugin can do a part of the ops only.
TEST_F(Lab, SaysWhatRanElsewhere) {
  const std::string folder = (folder_.path() / "out").string();
  const Json report =
      backplane_json(arguments({"--json", "--device", "template:0", "--fallback", "allow", "--out", folder}));
  EXPECT_FALSE(report["fallbacks"].empty());
  EXPECT_EQ(report["experiments"]["cache"]["equal_tokens"], true);
  const std::string page = read_file(folder + "/lab.html");
  EXPECT_NE(page.find("did not run on the device that was chosen"), page.npos);
  EXPECT_EQ(XmlCheck::fault(page), "");
}

TEST_F(Lab, WorksWithoutATokenizer) {
  const std::string bare = write_model({.tokenizer = false}, "bare.gguf");
  const Json report = backplane_json({"lab", bare, "--quick", "--json"});
  EXPECT_EQ(report["experiments"]["cache"]["text"], "");
  EXPECT_EQ(report["experiments"]["cache"]["equal_tokens"], true);
}

TEST_F(Lab, SaysWhatASmallContextHasNoRoomFor) {
  const std::string small = write_model({.context = 16}, "small.gguf");
  const std::string folder = (folder_.path() / "small").string();
  const Json report = backplane_json({"lab", small, "--quick", "--json", "--out", folder});
  for (const std::string& id : kExperiments) {
    EXPECT_NE(report["experiments"][id]["skipped"].get<std::string>().find("too small"), std::string::npos);
  }
  EXPECT_EQ(XmlCheck::fault(read_file(folder + "/lab.html")), "");
}

TEST_F(Lab, RefusesAFolderItCantWrite) {
  const std::string file = folder_.write("taken", "x").string();
  expect_refusal(arguments({"--out", file, "--json"}), 2, "--out");
  expect_refusal(arguments({"--out", file + "/below"}), 2, "--out");
  expect_refusal(arguments({"--out", "/proc/nothing"}), 2, "--out");
  EXPECT_EQ(read_file(file), "x");
}

}  // namespace
}  // namespace backplane::test
