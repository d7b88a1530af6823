// `backplane check` finds what is wrong with a device, names it, and blames nothing sound.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/e2e/program.h"
#include "tests/support/tiny_model.h"

namespace backplane::test {
namespace {

class Check : public ::testing::Test {
 protected:
  std::string llama(const TinyLlama& model = {}) const { return write_tiny_llama(folder_, model).string(); }
  std::string gpt2() const { return write_tiny_gpt2(folder_).string(); }

  Json check(const std::string& model, const std::vector<std::string>& more, int status) const {
    std::vector<std::string> arguments = {"check", model, "--json", "-", "--plugin", FAULTY_PLUGIN};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return backplane_json(std::move(arguments), {}, status);
  }

  // Finds nothing, with every op compared.
  void expect_sound(const std::string& model, const std::vector<std::string>& more) const {
    const Json report = check(model, more, 0);
    EXPECT_EQ(report["verdict"], "ROUNDING") << report.dump();
    EXPECT_EQ(report["first"], nullptr);
    EXPECT_GT(report["runs_compared"], 100);
    EXPECT_EQ(report["runs_not_compared"], 0) << report.dump();
    for (const Json& flip : report["logits"]["flips"]) EXPECT_EQ(flip["explained"], true) << flip;
    for (const Json& op : report["ops"]) {
      EXPECT_LE(op["error"], 1) << op;
      // Storing the results alone, and what the device declares to round first, makes nearly all of the error.
      EXPECT_LT(op["accumulated"], 1e-5 + 2 * op["storage"].get<double>()) << op;
    }
  }

  TempFolder folder_;
};

TEST_F(Check, FindsNothingOnTheReferenceOfTheOtherPrecision) {
  for (const TinyType type : {TinyType::kF32, TinyType::kF16, TinyType::kQ5_0, TinyType::kQ8_0}) {
    expect_sound(llama({.type = type}), {"--device", "cpu:f32"});
  }
  expect_sound(llama({.qk_norm = true, .window = 5, .tied = true}), {"--device", "cpu:f32"});
  expect_sound(gpt2(), {"--device", "cpu:f32"});
  expect_sound(llama(), {"--device", "cpu:f64", "--against", "cpu:f32"});
}

TEST_F(Check, FindsNothingWhereTheDeclaredArithmeticIsKept) {
  expect_sound(llama(), {"--device", "faulty:0"});
  expect_sound(gpt2(), {"--device", "faulty:0"});
  expect_sound(llama(), {"--device", "faulty:0", "--options", "q8=1"});  // inputs rounded to Q8_0, and declared
}

TEST_F(Check, FindsNothingOnADeviceUnlikeAnyCpu) {
  for (const char* device : {"opaque:f32", "opaque:f16"}) {
    for (const std::string& model : {llama(), llama({.qk_norm = true, .type = TinyType::kQ8_0}), gpt2()}) {
      const Json report = check(model, {"--plugin", OPAQUE_PLUGIN, "--device", device}, 0);
      EXPECT_EQ(report["verdict"], "ROUNDING") << report.dump();
      EXPECT_GT(report["runs_compared"], 100);
    }
  }
}

TEST_F(Check, TakesLayersOnSeveralDevices) {
  const auto of_layer = [](const Json& report, int layer) {
    Json ops = Json::array();
    for (const Json& op : report["ops"]) {
      if (op["layer"] == layer) ops.push_back(op);
    }
    return ops;
  };
  const std::string model = llama();
  const std::vector<std::string> split = {"--plugin", OPAQUE_PLUGIN, "--device", "opaque:f32=1,cpu:f32"};
  const Json both = check(model, split, 0);
  EXPECT_EQ(both["device"], "opaque:f32,cpu:f32");
  EXPECT_EQ(both["verdict"], "ROUNDING") << both.dump();
  for (const Json& op : of_layer(both, 1)) EXPECT_EQ(op["runs_not_compared"], 0) << op;
  // Where both sides come to the same device there is nothing to compare, and that is said.
  const Json overlap = check(
      model, {"--plugin", OPAQUE_PLUGIN, "--device", "cpu:f32=1,opaque:f32", "--against", "cpu:f32=2,cpu:f64"}, 0);
  EXPECT_EQ(overlap["against"], "cpu:f32,cpu:f64");
  for (const Json& op : of_layer(overlap, 1)) EXPECT_EQ(op["runs_not_compared"], 0) << op;
  for (const Json& op : of_layer(overlap, 0)) {
    EXPECT_EQ(op["verdict"], "NOT COMPARED") << op;
    EXPECT_EQ(op["reason"], "both sides ran it on cpu:f32");
  }
  const Json mixed = check(model, {"--plugin", OPAQUE_PLUGIN, "--device", "opaque:f16=1,cpu:f32"}, 0);
  EXPECT_EQ(mixed["verdict"], "ROUNDING") << mixed.dump();
  for (const Json& op : of_layer(mixed, 1)) {
    EXPECT_EQ(op["verdict"], "NOT COMPARED") << op;
    EXPECT_EQ(op["reason"], "its activations are cast to F32 before they can be replaced");
  }
}

struct Fault {
  const char* name;
  std::set<std::string> ops;  // one of them is to be named first
  const char* first;          // where
  bool gpt2 = false;
  std::uint32_t window = 0;
};

const Fault kFaults[] = {
    {"head_map", {"ATTN_PREFILL", "ATTN_DECODE"}, "layers.0.attention."},
    {"last_page", {"ATTN_PREFILL", "ATTN_DECODE"}, "layers.0.attention."},
    {"window", {"ATTN_PREFILL", "ATTN_DECODE"}, "layers.0.attention.", false, 5},
    {"missing_bias", {"LINEAR"}, "layers.0.attention.qkv", true},
    {"transposed_v", {"ATTN_PREFILL", "ATTN_DECODE"}, "layers.0.attention."},
    {"eps", {"NORM"}, "layers.0.attention_norm"},
    {"rope_pairing", {"ROPE"}, "layers.0.attention.q_rope"},
    {"f16_sums", {"LINEAR"}, "layers.0.attention.q"},
    {"undeclared_q8", {"LINEAR"}, "layers.0.attention.q"},
};

class CheckFault : public Check, public ::testing::WithParamInterface<Fault> {};

TEST_P(CheckFault, IsFoundAndNamed) {
  const Fault& fault = GetParam();
  const std::string model = fault.gpt2 ? gpt2() : llama({.window = fault.window});
  const Json report = check(model, {"--device", "faulty:0", "--options", std::string("fault=") + fault.name}, 6);
  EXPECT_EQ(report["verdict"], "BUG");
  ASSERT_TRUE(report["first"].is_object()) << report.dump();
  EXPECT_TRUE(fault.ops.count(report["first"]["op"])) << report["first"];
  EXPECT_EQ(report["first"]["layer"], 0);
  EXPECT_EQ(report["first"]["name"].get<std::string>().rfind(fault.first, 0), 0u) << report["first"];
  const std::set<std::string> attention = {"ATTN_PREFILL", "ATTN_DECODE"};
  for (const Json& op : report["ops"]) {  // and nothing else is blamed
    const bool may = fault.ops.count(op["op"]) || (fault.ops.count("ATTN_PREFILL") && attention.count(op["op"]));
    EXPECT_TRUE(op["verdict"] != "BUG" || may) << op;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CheckFault, ::testing::ValuesIn(kFaults),
                         [](const auto& fault) { return std::string(fault.param.name); });

TEST_F(Check, SaysWhatWasNotCompared) {
  const Json fused = check(llama(), {"--device", "cpu:f32", "--fusion", "on"}, 0);
  std::uint64_t seen = 0;
  for (const Json& op : fused["ops"]) {
    if (op["verdict"] != "NOT COMPARED") continue;
    EXPECT_EQ(op["error"], nullptr);
    EXPECT_TRUE(op["reason"].is_string());
    seen += op["runs_not_compared"].get<std::uint64_t>();
  }
  EXPECT_GT(seen, 0u);
  EXPECT_EQ(fused["runs_not_compared"], seen);
  const ProgramRun run = backplane({"check", llama(), "--device", "cpu:f32", "--fusion", "on"});
  EXPECT_NE(run.out.find("not compared: "), std::string::npos) << run.out;
  EXPECT_NE(run.out.find(" ops: part of a fused op\n"), std::string::npos) << run.out;
}

TEST_F(Check, IsNoSuccessWhereNothingIsCompared) {
  const Json report = check(llama(), {"--device", "cpu:f32", "--against", "cpu:f64=1,cpu:f32=1"}, 0);
  EXPECT_GT(report["runs_compared"], 0);
  const Json nothing =
      check(llama(), {"--plugin", OPAQUE_PLUGIN, "--device", "cpu:f32", "--against", "cpu:f32=1,cpu:f32"}, 4);
  EXPECT_EQ(nothing["verdict"], "NOT COMPARED");
  EXPECT_EQ(nothing["runs_compared"], 0);
  EXPECT_EQ(nothing["error"]["code"], "device");
}

TEST_F(Check, PrintsATableAndWritesAReport) {
  const std::string report = (folder_.path() / "report.json").string();
  const ProgramRun run = backplane({"check", llama(), "--device", "faulty:0", "--plugin", FAULTY_PLUGIN, "--options",
                                    "fault=eps", "--json", report});
  EXPECT_EQ(run.status, 6) << run.err;
  EXPECT_NE(run.out.find("first to leave the bound: NORM layers.0.attention_norm"), std::string::npos) << run.out;
  std::ifstream file(report);
  EXPECT_EQ(Json::parse(file)["first"]["op"], "NORM");
}

TEST_F(Check, TakesAPromptAndRefusesNonsense) {
  const Json report = check(llama(), {"--device", "cpu:f32", "--prompt-ids", "1,2,3"}, 0);
  EXPECT_EQ(report["steps"], 3);  // at once; two tokens, then one
  EXPECT_EQ(report["tokens"], 6);
  expect_refusal({"check", llama()}, 2, "--device");
  expect_refusal({"check", llama(), "--device", "cpu:f32", "--threads", "0"}, 2, "--threads");
  expect_refusal({"check", llama(), "--device", "cpu:f32", "--ctx", "9"}, 2, "--ctx");
  expect_refusal({"check", llama(), "--device", "cpu:f64"}, 2, "itself");
  expect_refusal({"check", llama(), "--device", "cpu:f32", "--prompt-ids", "1,96"}, 2, "96");
  expect_refusal({"check", llama(), "--device", "cpu:f32", "--failover", "cpu:f32"}, 2, "--failover");
  expect_refusal({"check", llama(), "--device", "cpu:f32", "--decode-device", "cpu:f32"}, 2, "--decode-device");
  expect_refusal({"check", llama(), "--prefill-device", "cpu:f32"}, 2, "--prefill-device");
  expect_refusal({"check", llama(), "--device", "cpu:f32=1,cpu:f64", "--options", "a=b"}, 2, "--options");
  expect_refusal({"check", llama(), "--device", "cpu:f32=1,cpu:f64=3"}, 2, "layers");
  expect_refusal({"check", llama(), "--device", "cpu:f32=some,cpu:f64"}, 2, "number of layers");
  expect_refusal({"check", llama(), "--device", "cpu:f32", "--against", "cpu:f99"}, 4, "cpu:f99");
}

}  // namespace
}  // namespace backplane::test
