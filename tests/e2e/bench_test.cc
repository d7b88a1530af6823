// bench: what its report holds, on a model so small that the figures themselves say nothing.
#include <gtest/gtest.h>

#include "tests/e2e/program.h"
#include "tests/support/tiny_hf_model.h"

namespace backplane::test {
namespace {

class Bench : public ProgramTest {
 protected:
  std::vector<std::string> arguments(std::vector<std::string> more = {}) const {
    std::vector<std::string> all = {"bench",   model_,      "--device", "cpu:f32", "--prefill", "48,700",
                                    "--depth", "0,24,4000", "--decode", "6",       "--batch",   "1,3"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

void expect_case(const Json& row, const char* kind, int tokens, int batch, int depth) {
  EXPECT_EQ(row["kind"], kind);
  EXPECT_EQ(row["tokens"], tokens);
  EXPECT_EQ(row["batch"], batch);
  EXPECT_EQ(row["depth"], depth);
}

TEST_F(Bench, TellsFiguresRoofsAndMemory) {
  const Json report = backplane_json(arguments({"--json", "--repeat", "3", "--batch-tokens", "5", "--threads", "2"}));
  EXPECT_EQ(report["device"], "cpu:f32");
  EXPECT_EQ(report["threads"], 2);
  EXPECT_EQ(report["weight_type"], "F32");
  ASSERT_EQ(report["results"].size(), 4u) << report;
  expect_case(report["results"][0], "prefill", 48, 1, 0);
  expect_case(report["results"][1], "decode", 6, 1, 0);  // batch 1 at depth 0 too
  expect_case(report["results"][2], "decode", 6, 1, 24);
  expect_case(report["results"][3], "decode", 5, 3, 0);
  for (const Json& row : report["results"]) {
    EXPECT_GT(row["tokens_per_s"], 0);
    EXPECT_GE(row["spread"], 0);
    EXPECT_EQ(row["runs"].size(), 3u);
    EXPECT_GT(row["bandwidth_share"], 0);
    EXPECT_GT(row["arithmetic_share"], 0);
    EXPECT_EQ(row["arithmetic_roof"], "f32");
  }
  ASSERT_EQ(report["skipped"].size(), 2u);
  expect_case(report["skipped"][0], "prefill", 700, 1, 0);
  expect_case(report["skipped"][1], "decode", 6, 1, 4000);
  EXPECT_NE(report["skipped"][1]["reason"].get<std::string>().find("the context of 256"), std::string::npos);
  EXPECT_GT(report["roofs"]["read"]["bytes_per_s"], 0);
  EXPECT_GT(report["roofs"]["f32"]["operations_per_s"], 0);
  EXPECT_GT(report["load_s"], 0);
  EXPECT_GT(report["memory"]["peak_resident"], report["memory"]["weights"]);
  EXPECT_TRUE(report["fallbacks"].empty());
}

// 2 layers, a step for each of 48 tokens' prompt and for 6 tokens of a reply: the ops that only a layer has come twice
// a step, whatever else is fused.
TEST_F(Bench, CountsTheOpsOfTheStepsThatItMeasures) {
  const Json report = backplane_json(arguments({"--json", "--repeat", "1", "--no-roofs"}));
  EXPECT_TRUE(report["roofs"].is_null());
  EXPECT_FALSE(report["results"][0].contains("bandwidth_share"));
  const Json& tables = report["ops"]["tables"];
  ASSERT_EQ(tables.size(), 2u);
  expect_case(tables[0], "prefill", 48, 1, 0);
  expect_case(tables[1], "decode", 6, 1, 0);
  for (const Json& table : tables) {
    const int steps = table["kind"] == "prefill" ? 1 : 6;
    double sum = 0;
    int attention = 0;
    for (const Json& op : table["ops"]) {
      sum += op["seconds"].get<double>();
      EXPECT_EQ(op["count"].get<int>() % steps, 0) << op;
      if (op["op"].get<std::string>().find("ATTN") != std::string::npos) attention += op["count"].get<int>();
    }
    EXPECT_EQ(attention, 2 * steps) << table;
    EXPECT_GT(sum, 0);
    EXPECT_LE(sum, table["seconds"].get<double>() * 1.001) << "figures have six digits";
  }
}

TEST_F(Bench, PrintsTables) {
  const ProgramRun run = backplane(arguments({"--repeat", "1"}));
  ASSERT_EQ(run.status, 0) << run.err;
  for (const char* part :
       {"prefill 48", "decode 6, depth 24", "decode 64, batch 3", "decode 6, depth 4000: not measured", "tokens/s",
        "Roofs", "Time per op, decode 6", "outside of ops"}) {
    EXPECT_NE(run.out.find(part), run.out.npos) << part << "\n" << run.out;
  }
}

TEST_F(Bench, WorksWithoutATokenizerAndWithDefaults) {
  const std::string bare = write_model({.context = 160, .tokenizer = false}, "bare.gguf");
  const Json report = backplane_json({"bench", bare, "--device", "cpu:f32", "--json", "--repeat", "1", "--no-roofs"});
  ASSERT_EQ(report["results"].size(), 3u);
  expect_case(report["results"][0], "decode", 128, 1, 0);
  expect_case(report["results"][1], "decode", 64, 8, 0);
  expect_case(report["results"][2], "decode", 64, 32, 0);
  EXPECT_EQ(report["skipped"].size(), 2u);
}

// With steps so small that some sequences have their prompts long before others, and with more sequences than one look
// at the queue shows. In each step that counts, all of them decode at the depth that was asked for, or bench fails.
TEST_F(Bench, RepliesOfABatchBeginTogether) {
  const std::string model = write_model({.context = 560}, "long.gguf");
  Json report =
      backplane_json({"bench",         model,       "--device",       "cpu:f32", "--json",        "--repeat", "1",
                      "--no-roofs",    "--prefill", "none",           "--depth", "none",          "--batch",  "32",
                      "--batch-depth", "512",       "--batch-tokens", "40",      "--step-tokens", "512"});
  ASSERT_EQ(report["results"].size(), 1u);
  expect_case(report["results"][0], "decode", 40, 32, 512);
  EXPECT_EQ(report["step_tokens"], 512);
  report =
      backplane_json({"bench",          model_,      "--device",      "cpu:f32", "--json",        "--repeat", "1",
                      "--no-roofs",     "--prefill", "none",          "--depth", "none",          "--batch",  "300",
                      "--batch-tokens", "3",         "--batch-depth", "2",       "--step-tokens", "8"});
  expect_case(report["results"].back(), "decode", 3, 300, 2);
  EXPECT_EQ(report["step_tokens"], 300) << "a token of each";
}

// What is behind a window is gone after the replies of the run that doesn't count, page after page.
TEST_F(Bench, RepeatsBehindAWindow) {
  for (const TinyHf kind : {TinyHf::kQwen2, TinyHf::kMistral}) {
    const TempFolder folder;
    const Json report = backplane_json({"bench", write_tiny_hf(folder, kind).string(), "--device", "cpu:f32", "--json",
                                        "--repeat", "1", "--no-roofs", "--prefill", "none", "--depth", "none",
                                        "--batch", "3", "--batch-depth", "20", "--batch-tokens", "40"});
    expect_case(report["results"][0], "decode", 40, 3, 20);
  }
}

// The opaque test device records steps: a batch of 3 tokens has two kinds of them, and those after the first token come
// twice. What is recorded must be before the repetitions that count, and stay from one to the next.
TEST_F(Bench, CountsNoStepThatIsRecorded) {
  const Json report = backplane_json({"bench",
                                      model_,
                                      "--json",
                                      "--repeat",
                                      "2",
                                      "--no-roofs",
                                      "--prefill",
                                      "none",
                                      "--depth",
                                      "8",
                                      "--decode",
                                      "5",
                                      "--batch",
                                      "4",
                                      "--batch-tokens",
                                      "3",
                                      "--fallback",
                                      "allow",
                                      "--device",
                                      "opaque:f32",
                                      "--plugin",
                                      BACKPLANE_FAKE_PLUGINS "/opaque"});
  ASSERT_EQ(report["results"].size(), 2u);
  for (const Json& row : report["results"]) {
    EXPECT_EQ(row["steps_recorded"], 0) << row;
    EXPECT_EQ(row["steps_launched"], 2 * row["tokens"].get<int>()) << row;
  }
}

// The opaque test device has streams: the time of a call is not that of the op.
TEST_F(Bench, SaysWhereOpsCantBeTimed) {
  const Json report = backplane_json({"bench", model_, "--json", "--repeat", "1", "--no-roofs", "--prefill", "4",
                                      "--depth", "none", "--batch", "none", "--fallback", "allow", "--device",
                                      "opaque:f32", "--plugin", BACKPLANE_FAKE_PLUGINS "/opaque"});
  EXPECT_NE(report["ops"]["skipped"].get<std::string>().find("opaque:f32"), std::string::npos) << report["ops"];
}

TEST_F(Bench, RefusesWrongUse) {
  expect_refusal(arguments({"--repeat", "0", "--json"}), 2, "--repeat 0");
  expect_refusal({"bench", model_, "--device", "tpu:0", "--json"}, 4, "tpu:0");
  expect_refusal({"bench", model_, "--depth", "4000", "--prefill", "none", "--batch", "none", "--json"}, 5,
                 "the context of 256");
  expect_refusal({"bench", model_, "--depth", "none", "--prefill", "none", "--batch", "none"}, 2, "nothing to measure");
  expect_refusal({"bench", model_, "--prefill", "0"}, 2, "--prefill 0");
  expect_refusal({"bench", model_, "--batch", "1,,8"}, 2, "--batch 1,,8");
  expect_refusal({"bench", model_, "--batch", "99999"}, 2, "--batch 99999");
  expect_refusal({"bench", model_, "--decode", "0"}, 2, "--decode 0");
  expect_refusal({"bench", model_, "--step-tokens", "0"}, 2, "--step-tokens 0");
  expect_refusal({"bench", model_, "--shadow", "cpu:f64"}, 2, "--shadow");
  expect_refusal({"bench", (folder_.path() / "missing.gguf").string(), "--json"}, 3, "missing.gguf");
}

}  // namespace
}  // namespace backplane::test
