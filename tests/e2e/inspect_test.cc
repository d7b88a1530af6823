#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/e2e/program.h"
#include "tests/support/safetensors_builder.h"

namespace backplane::test {
namespace {

class Inspect : public ProgramTest {};

TEST_F(Inspect, DescribesAModel) {
  const Json seen = backplane_json({"inspect", model_, "--json"});
  EXPECT_EQ(seen["format"], "gguf");
  EXPECT_EQ(seen["architecture"], "llama");
  EXPECT_EQ(seen["model"]["supported"], true);
  EXPECT_EQ(seen["metadata"]["llama.block_count"], 2);
  EXPECT_EQ(seen["metadata"]["tokenizer.ggml.tokens"]["length"], kSmallVocabulary);
  ASSERT_EQ(seen["tensors"].size(), 21u);
  EXPECT_EQ(seen["tensors"][0], Json::parse(R"({"name": "token_embd.weight", "type": "F32", "shape": [259, 32]})"));
  // 2 x 259 x 32 + 2 x (4 matrices of attention, 3 of the MLP, 2 norms) + 1 norm
  EXPECT_EQ(seen["parameters"], 2 * 259 * 32 + 2 * (32 * 32 * 2 + 16 * 32 * 2 + 3 * 64 * 32 + 2 * 32) + 32);
  EXPECT_EQ(seen["memory"]["weights"], 4 * seen["parameters"].get<int>());
  EXPECT_EQ(seen["memory"]["kv"], 256 * 2 * 2 * 16 * 4);  // tokens x layers x (K, V) x 2 heads of 8 x 4 bytes
  EXPECT_EQ(backplane_json({"inspect", model_, "--json", "--ctx", "32"})["memory"]["kv"], 32 * 2 * 2 * 16 * 4);
  for (const Json& support : seen["support"]) {
    EXPECT_EQ(support["runs"], support["plugin"] == "cpu" ? Json(true) : Json()) << support;
    EXPECT_EQ(support["types"]["F32"], support["plugin"] == "cpu" ? Json(true) : Json()) << support;
  }
  EXPECT_NE(backplane({"inspect", model_}).out.find("blk.1.ffn_down.weight"), std::string::npos);
}

TEST_F(Inspect, SaysWhichOpsADeviceLacks) {
  const Json support = backplane_json({"inspect", model_, "--json", "--device", "template"})["support"][0];
  EXPECT_EQ(support["device"], "template:0");
  EXPECT_EQ(support["runs"], true);
  bool linear = false, norm = false;
  for (const Json& op : support["ops"]) {
    if (op["op"] == "LINEAR") {
      linear = op["device"] == "template:0" && op["count"] == 15 && op["reason"].is_null();
    } else {
      EXPECT_EQ(op["device"], "cpu:f32") << op;
      EXPECT_TRUE(op["reason"].is_string()) << op;
      norm |= op["op"] == "NORM";
    }
  }
  EXPECT_TRUE(linear) << support;
  EXPECT_TRUE(norm) << support;
}

TEST_F(Inspect, ReadsContainersThatAreNoModel) {
  const std::string unknown = write_model({.architecture = "future"}, "unknown.gguf");
  const Json seen = backplane_json({"inspect", unknown, "--json"});
  EXPECT_EQ(seen["architecture"], "future");
  EXPECT_EQ(seen["model"]["supported"], false);
  EXPECT_NE(seen["model"]["reason"].get<std::string>().find("future"), std::string::npos);
  EXPECT_EQ(seen["memory"], nullptr);
  const std::string weights =
      folder_
          .write("w.safetensors", safetensors_file(R"({"a": {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}})",
                                                   std::string(4, '\0')))
          .string();
  const Json plain = backplane_json({"inspect", weights, "--json"});
  EXPECT_EQ(plain["format"], "safetensors");
  EXPECT_EQ(plain["parameters"], 2);
  EXPECT_EQ(plain["tensors"][0]["type"], "F16");
}

TEST_F(Inspect, GivesBackTheBitsOfATensor) {
  using F = std::numeric_limits<float>;
  const std::vector<float> values = {0.1f, -0.0f,         F::max(),       F::denorm_min(),
                                     1.0f, F::infinity(), F::quiet_NaN(), -2.5e-7f};
  GgufBuilder gguf;
  gguf.string("general.architecture", "test").f32_tensor("x", {4, 2}, values).f32_tensor("empty", {0}, {});
  gguf.tensor("odd", 16, {256}, std::string(66, '\0'));  // IQ2_XXS, which can be listed only
  const std::string file = folder_.write("t.gguf", gguf.build()).string();
  const Json seen = backplane_json({"inspect", file, "--tensor", "x", "--json"});
  EXPECT_EQ(seen["name"], "x");
  EXPECT_EQ(seen["type"], "F32");
  EXPECT_EQ(seen["shape"], Json::parse("[2, 4]"));
  ASSERT_EQ(seen["values"].size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      EXPECT_TRUE(seen["values"][i].is_null()) << i;
      continue;
    }
    const auto back = static_cast<float>(seen["values"][i].get<double>());
    EXPECT_EQ(std::memcmp(&back, &values[i], sizeof back), 0) << i;
  }
  EXPECT_EQ(backplane_json({"inspect", file, "--tensor", "empty", "--json"})["values"], Json::array());
  expect_refusal({"inspect", file, "--tensor", "odd", "--json"}, 3, "IQ2_XXS");
  expect_refusal({"inspect", file, "--tensor", "none", "--json"}, 3, "none");
}

TEST_F(Inspect, ReadsScalarsAndIntegersOfSafetensors) {
  const std::string header = R"({"scalar": {"dtype": "F64", "shape": [], "data_offsets": [0, 8]},)"
                             R"( "odd": {"dtype": "BF16", "shape": [3, 1], "data_offsets": [8, 14]}})";
  std::string data(14, '\0');
  const double value = -1.25;
  std::memcpy(data.data(), &value, 8);
  for (int i = 0; i < 3; ++i) data.replace(8 + 2 * i, 2, "\x80\x3f");  // 1 in bf16
  const std::string file = folder_.write("s.safetensors", safetensors_file(header, data)).string();
  const Json scalar = backplane_json({"inspect", file, "--tensor", "scalar", "--json"});
  EXPECT_EQ(scalar["shape"], Json::array());
  EXPECT_EQ(scalar["values"], Json::parse("[-1.25]"));
  EXPECT_EQ(backplane_json({"inspect", file, "--tensor", "odd", "--json"})["values"], Json::parse("[1, 1, 1]"));
}

}  // namespace
}  // namespace backplane::test
