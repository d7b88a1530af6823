#include "core/formats/container.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/formats/hf_folder.h"
#include "core/formats/utf8.h"
#include "tests/support/expect_error.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/safetensors_builder.h"
#include "tests/support/temp_folder.h"

namespace backplane::formats {
namespace {

using test::safetensors_file;

const std::string kOneTensor = safetensors_file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "abcd");

class ContainerTest : public ::testing::Test {
 protected:
  void expect_refused(std::string_view contents, const char* part) {
    EXPECT_ERROR(open_container(folder_.write("x", contents)), ErrorCode::kBadFile, part);
  }

  test::TempFolder folder_;
};

TEST_F(ContainerTest, TellsByContentNotByName) {
  const auto gguf = folder_.write("model.safetensors", test::GgufBuilder().u32("a", 1).build());
  EXPECT_EQ(open_container(gguf)->format(), "gguf");
  const auto tensors = folder_.write("model.gguf", kOneTensor);
  EXPECT_EQ(open_container(tensors)->format(), "safetensors");
  const auto index = folder_.write("weights", R"( {"weight_map": {"a": "model.gguf"}})");
  EXPECT_EQ(open_container(index)->format(), "safetensors-index");
  // A header of 0x7b bytes begins like JSON.
  const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const auto brace = safetensors_file(header + std::string(0x7b - header.size(), ' '), "abcd");
  ASSERT_EQ(brace[0], '{');
  EXPECT_EQ(open_container(folder_.write("brace", brace))->format(), "safetensors");
}

TEST_F(ContainerTest, SaysWhatAFileIsInstead) {
  expect_refused("", "empty");
  expect_refused("version https://git-lfs.github.com/spec/v1\noid sha256:00", "Git LFS pointer");
  expect_refused("PK\x03\x04 and more", "zip archive");
  expect_refused("tjggxxxx", "before GGUF");
  expect_refused("Once upon a time", "not a model file");
  expect_refused(R"({"model_type": "llama"})", "weight_map");
  expect_refused("{", "JSON");
  EXPECT_ERROR(open_container(folder_.path() / "absent"), ErrorCode::kBadFile, "no such file");
  EXPECT_ERROR(open_container("/dev/null"), ErrorCode::kBadFile, "not a regular file");
}

TEST_F(ContainerTest, OpensAModelFolder) {
  EXPECT_ERROR(open_container(folder_.path()), ErrorCode::kBadFile, "config.json");
  folder_.write("tokenizer.json", "{}");
  EXPECT_ERROR(open_container(folder_.path()), ErrorCode::kBadFile, "config.json");
  folder_.write("config.json", R"({"architectures":["LlamaForCausalLM"],"eos_token_id":2,"list":[1,2,3]})");
  EXPECT_ERROR(open_container(folder_.path()), ErrorCode::kBadFile, "model.safetensors");
  folder_.write("shard.safetensors", kOneTensor);
  folder_.write("model.safetensors.index.json", R"({"weight_map":{"a":"shard.safetensors"}})");
  const auto sharded = open_container(folder_.path());
  EXPECT_EQ(sharded->format(), "huggingface");
  EXPECT_EQ(sharded->architecture(), "LlamaForCausalLM");
  EXPECT_EQ(sharded->tensor("a").data.size(), 4u);
  EXPECT_EQ(sharded->metadata(2)["list"]["length"], 3);

  folder_.write("model.safetensors", kOneTensor);
  EXPECT_EQ(HuggingFaceFolder::open(folder_.path())->eos_token_ids(), (std::vector<std::uint64_t>{2}));
  folder_.write("generation_config.json", R"({"eos_token_id":[7,8]})");
  EXPECT_EQ(HuggingFaceFolder::open(folder_.path())->eos_token_ids(), (std::vector<std::uint64_t>{7, 8}));
  folder_.write("generation_config.json", R"({"temperature":1.0})");
  EXPECT_EQ(HuggingFaceFolder::open(folder_.path())->eos_token_ids(), (std::vector<std::uint64_t>{2}));
  folder_.write("config.json", "[]");
  EXPECT_ERROR(open_container(folder_.path()), ErrorCode::kBadFile, "not a JSON object");
}

TEST(Utf8Test, AcceptsExactlyTheValidForms) {
  for (const char* good :
       {"", "a", "\xc3\xa9", "\xe2\x82\xac", "\xef\xbf\xbf", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
    EXPECT_EQ(to_utf8(good), good);
  }
  for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                          "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\xe2\x82"}) {
    EXPECT_FALSE(is_utf8(bad)) << bad;
    EXPECT_TRUE(is_utf8(to_utf8(bad)));
  }
  EXPECT_EQ(to_utf8("a\xff\xc3\xa9"), "a\xef\xbf\xbd\xc3\xa9");
}

}  // namespace
}  // namespace backplane::formats
