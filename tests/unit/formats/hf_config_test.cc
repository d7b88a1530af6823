#include "core/formats/hf_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace backplane::formats {
namespace {

using Names = std::vector<std::string>;

HfConfig config(std::string_view text) { return HfConfig::from_text(text, "config.json"); }

TEST(HfConfigTest, ReadsEveryKind) {
  const HfConfig c = config(R"({"n":3,"whole":4096.0,"x":0.5,"yes":true,"s":"silu","null":null,
      "ids":[1,2],"one":7,"list":[1,2.5],"names":["a","b"],"object":{"k":1}})");
  EXPECT_EQ(c.u64("n"), 3u);
  EXPECT_EQ(c.u64("whole"), 4096u);
  EXPECT_EQ(c.f64("x"), 0.5);
  EXPECT_EQ(c.f64("n"), 3.0);
  EXPECT_TRUE(c.boolean("yes"));
  EXPECT_EQ(c.string("s"), "silu");
  EXPECT_EQ(c.u64("null", 9), 9u);
  EXPECT_EQ(c.u64("absent", 9), 9u);
  EXPECT_EQ(c.string("absent", "gelu"), "gelu");
  EXPECT_FALSE(c.has("null"));
  EXPECT_EQ(c.integers("ids"), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(c.integers("one"), (std::vector<std::uint64_t>{7}));
  EXPECT_TRUE(c.integers("null").empty());
  EXPECT_EQ(c.numbers("list"), (std::vector<double>{1, 2.5}));
  EXPECT_EQ(c.strings("names"), (Names{"a", "b"}));
  EXPECT_EQ(c.find_object("object")->u64("k"), 1u);
}

TEST(HfConfigTest, NamesKeyAndFileWhenSomethingIsWrong) {
  const HfConfig c = config(R"({"n":-3,"x":1.5,"s":"4","b":1,"list":[1,"2"],"object":{"k":"v"}})");
  EXPECT_ERROR(c.u64("absent"), ErrorCode::kBadFile, "'absent' is missing: config.json");
  EXPECT_ERROR(c.u64("n"), ErrorCode::kBadFile, "'n' should be an unsigned integer, not -3");
  EXPECT_ERROR(c.u64("x", 1), ErrorCode::kBadFile, "'x'");
  EXPECT_ERROR(c.f64("s"), ErrorCode::kBadFile, "'s'");
  EXPECT_ERROR(c.boolean("b"), ErrorCode::kBadFile, "'b' should be true or false");
  EXPECT_ERROR(c.string("n"), ErrorCode::kBadFile, "'n'");
  EXPECT_ERROR(c.integers("list"), ErrorCode::kBadFile, "'list'");
  EXPECT_ERROR(c.numbers("list"), ErrorCode::kBadFile, "'list'");
  EXPECT_ERROR(c.strings("list"), ErrorCode::kBadFile, "'list'");
  EXPECT_ERROR(c.find_object("s"), ErrorCode::kBadFile, "'s'");
  EXPECT_ERROR(c.find_object("object")->u64("k"), ErrorCode::kBadFile, "'object.k'");
}

TEST(HfConfigTest, ListsWhatNobodyRead) {
  const HfConfig c =
      config(R"({"a":1,"b":2,"none":null,"seen":{"x":1,"y":2,"z":null},"unseen":{"x":1},"skip":{"x":1}})");
  EXPECT_EQ(c.unread_keys(), (Names{"a", "b", "seen", "skip", "unseen"}));
  EXPECT_TRUE(c.has("a"));
  c.u64("b");
  c.ignore({"skip"});
  c.find_object("seen")->u64("y");
  EXPECT_EQ(c.unread_keys(), (Names{"a", "seen.x", "unseen"}));
  const HfConfig copy = c;
  copy.u64("a");
  EXPECT_EQ(c.unread_keys(), (Names{"seen.x", "unseen"}));
  EXPECT_EQ(c.unread().unread_keys().size(), 5u);
}

TEST(HfConfigTest, ArchitectureAndDtype) {
  const HfConfig both = config(R"({"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","dtype":"bfloat16"})");
  EXPECT_EQ(both.architecture(), "Qwen3ForCausalLM");
  EXPECT_EQ(both.dtype(), "bfloat16");
  EXPECT_TRUE(both.unread_keys().empty());
  EXPECT_EQ(config(R"({"architectures":null,"model_type":"gpt2"})").architecture(), "gpt2");
  EXPECT_EQ(config(R"({"architectures":[],"model_type":"gpt2"})").architecture(), "gpt2");
  EXPECT_EQ(config("{}").architecture(), "");
  EXPECT_EQ(config(R"({"torch_dtype":"float16"})").dtype(), "float16");
  EXPECT_EQ(config(R"({"torch_dtype":"torch.float32"})").dtype(), "float32");
  EXPECT_EQ(config("{}").dtype(), "");
}

TEST(HfConfigTest, RefusesBrokenFiles) {
  test::TempFolder folder;
  EXPECT_ERROR(config("[1]"), ErrorCode::kBadFile, "not a JSON object");
  EXPECT_ERROR(config("{\"a\":1,}"), ErrorCode::kBadFile, "not valid JSON");
  EXPECT_ERROR(config("{\"a\":1,\"a\":2}"), ErrorCode::kBadFile, "'a' is there twice");
  EXPECT_ERROR(config(std::string(100000, '[')), ErrorCode::kBadFile, "nested deeper");
  EXPECT_ERROR(config("{\"a\":\"\xff\"}"), ErrorCode::kBadFile, "not valid JSON");
  EXPECT_ERROR(config(std::string_view("{}\0x", 4)), ErrorCode::kBadFile, "zero byte");
  const auto large = folder.write("config.json", "{\"a\":\"" + std::string(5u << 20, 'x') + "\"}");
  EXPECT_ERROR(HfConfig::from_file(large), ErrorCode::kBadFile, "more than the");
  EXPECT_ERROR(HfConfig::from_file(folder.path() / "none.json"), ErrorCode::kBadFile, "no such file");
}

}  // namespace
}  // namespace backplane::formats
