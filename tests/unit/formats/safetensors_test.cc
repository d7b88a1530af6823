#include "core/formats/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/expect_error.h"
#include "tests/support/safetensors_builder.h"
#include "tests/support/temp_folder.h"

namespace backplane::formats {
namespace {

using test::safetensors_file;

class SafetensorsTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Safetensors> open(std::string_view header, std::string_view data = "") {
    return Safetensors::open(folder_.write("m.safetensors", safetensors_file(header, data)));
  }
  // One F32 tensor "a" of four values, with its fields replaced.
  void expect_refused(std::string_view fields, const char* part) {
    EXPECT_ERROR(open(fmt::format(R"({{"a":{{{}}}}})", fields), std::string(16, 'x')), ErrorCode::kBadFile, part);
  }

  test::TempFolder folder_;
};

TEST_F(SafetensorsTest, ReadsTensorsInTheOrderOfTheirBytes) {
  const auto file = open(R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},
      "a":{"data_offsets":[0,8],"shape":[2,1],"dtype":"F32"},"__metadata__":{"format":"pt"}}   )",
                         "aaaaaaaabbbbbbbb");
  EXPECT_EQ(file->format(), "safetensors");
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->tensors()[0].name, "a");
  EXPECT_EQ(file->tensors()[0].shape, (std::vector<std::uint64_t>{2, 1}));
  EXPECT_EQ(static_cast<char>(file->tensor("b").data[0]), 'b');
  EXPECT_EQ(file->text_metadata().at("format"), "pt");
  EXPECT_EQ(file->metadata(0)["format"], "pt");
}

TEST_F(SafetensorsTest, KnowsEveryTypeAndItsWidth) {
  // The sizes are the format's; those without a DType can be listed only.
  const struct {
    const char* name;
    std::size_t bits;
    bool computable;
  } types[] = {{"BOOL", 8, true},     {"U8", 8, true},       {"I8", 8, true},       {"F8_E4M3", 8, true},
               {"F8_E5M2", 8, true},  {"I16", 16, true},     {"U16", 16, true},     {"F16", 16, true},
               {"BF16", 16, true},    {"I32", 32, true},     {"U32", 32, true},     {"F32", 32, true},
               {"F64", 64, true},     {"I64", 64, true},     {"U64", 64, true},     {"C64", 64, false},
               {"F8_E8M0", 8, false}, {"F6_E2M3", 6, false}, {"F6_E3M2", 6, false}, {"F4", 4, false}};
  for (const auto& type : types) {
    const std::size_t bytes = 8 * type.bits / 8;
    const auto file =
        open(fmt::format(R"({{"t":{{"dtype":"{}","shape":[2,4],"data_offsets":[0,{}]}}}})", type.name, bytes),
             std::string(bytes, 'x'));
    EXPECT_EQ(file->tensor("t").type_name, type.name);
    EXPECT_EQ(file->tensor("t").type.has_value(), type.computable) << type.name;
    EXPECT_EQ(file->tensor("t").data.size(), bytes);
  }
  EXPECT_ERROR(open(R"({"t":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", "x"), ErrorCode::kBadFile, "shape");
}

TEST_F(SafetensorsTest, AcceptsScalarsEmptyTensorsAndUnknownFields) {
  const auto file = open(R"({"s":{"dtype":"U8","shape":[],"data_offsets":[0,1]},
      "none":{"dtype":"F32","shape":[0,9],"data_offsets":[1,1]},
      "more":{"dtype":"U8","shape":[1],"data_offsets":[1,2],"note":{"deep":[1,{"x":[null,true,-1,1.5,"s"]}]},"n":1}})",
                         "xy");
  EXPECT_EQ(file->tensor("s").elements(), 1u);
  EXPECT_EQ(file->tensor("none").elements(), 0u);
  EXPECT_EQ(file->tensor("more").data.size(), 1u);
  EXPECT_TRUE(open("{}")->tensors().empty());
}

TEST_F(SafetensorsTest, RefusesBadHeaders) {
  EXPECT_ERROR(Safetensors::open(folder_.write("short", "1234567")), ErrorCode::kBadFile, "too short");
  EXPECT_ERROR(open(" {}"), ErrorCode::kBadFile, "begin");
  EXPECT_ERROR(open("\xef\xbb\xbf{}"), ErrorCode::kBadFile, "begin");
  EXPECT_ERROR(open(std::string_view("{}\0", 3)), ErrorCode::kBadFile, "zero byte");
  EXPECT_ERROR(open("{}{}"), ErrorCode::kBadFile, "JSON");
  EXPECT_ERROR(open("{\"a\":"), ErrorCode::kBadFile, "JSON");
  EXPECT_ERROR(open("{\"\xff\":{}}"), ErrorCode::kBadFile, "JSON");
  EXPECT_ERROR(open(R"({"a":[]})"), ErrorCode::kBadFile, "an array where an object");
  EXPECT_ERROR(open(R"({"a":1})"), ErrorCode::kBadFile, "a number where an object");
  EXPECT_ERROR(open(R"({"__metadata__":{"a":1}})"), ErrorCode::kBadFile, "'a' is a number");
  EXPECT_ERROR(open(R"({"__metadata__":{"a":"1","a":"2"}})"), ErrorCode::kBadFile, "twice");
  EXPECT_ERROR(open(R"({"t":{"x":)" + std::string(100000, '[') + "}}"), ErrorCode::kBadFile, "nested deeper");
  EXPECT_ERROR(
      open(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
          "xy"),
      ErrorCode::kBadFile, "two tensors are named 'a'");
}

TEST_F(SafetensorsTest, RefusesBadTensors) {
  const std::string type = R"("dtype":"F32",)", shape = R"("shape":[4],)", offsets = R"("data_offsets":[0,16])";
  expect_refused(shape + offsets, "no dtype");
  expect_refused(type + offsets, "no shape");
  expect_refused(type + R"("shape":[4])", "no data_offsets");
  expect_refused(type + type + shape + offsets, "twice");
  expect_refused(type + shape + shape + offsets, "twice");
  expect_refused(R"("dtype":"f32",)" + shape + offsets, "unknown dtype 'f32'");
  expect_refused(R"("dtype":32,)" + shape + offsets, "'dtype' of tensor 'a' can't be a number");
  expect_refused(type + R"("shape":4,)" + offsets, "can't be a number");
  expect_refused(type + R"("shape":[-4],)" + offsets, "negative");
  expect_refused(type + R"("shape":[4.0],)" + offsets, "unsigned integer");
  expect_refused(type + R"("shape":[[4]],)" + offsets, "an array");
  expect_refused(type + R"("shape":[18446744073709551616],)" + offsets, "unsigned integer");
  expect_refused(type + R"("shape":[9223372036854775808,2],)" + offsets, "doesn't fit");
  expect_refused(type + R"("shape":[4611686018427387905,4],)" + offsets, "doesn't fit");
  expect_refused(type + R"("shape":[3],)" + offsets, "doesn't fit");
  expect_refused(type + shape + R"("data_offsets":[0])", "1 data_offsets");
  expect_refused(type + shape + R"("data_offsets":[0,8,16])", "3 data_offsets");
  expect_refused(type + shape + R"("data_offsets":[16,0])", "should follow");
  expect_refused(type + shape + R"("data_offsets":[0,32])", "should follow");
  expect_refused(type + R"("shape":[2],"data_offsets":[8,16])", "should follow");
  expect_refused(type + R"("shape":[2],"data_offsets":[0,8])", "16 bytes of data");
}

class SafetensorsIndexTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto one = [](const char* name) {
      return safetensors_file(fmt::format(R"({{"{}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}})", name), name);
    };
    folder_.write("1.safetensors", one("a"));
    folder_.write("2.safetensors", one("b"));
  }
  std::shared_ptr<const Safetensors> open(std::string_view json) {
    return Safetensors::open_index(folder_.write("index.json", json));
  }

  test::TempFolder folder_;
};

TEST_F(SafetensorsIndexTest, JoinsItsShards) {
  const auto set = open(R"({"metadata":{"total_size":2},"weight_map":{"b":"2.safetensors","a":"1.safetensors"}})");
  EXPECT_EQ(set->format(), "safetensors-index");
  EXPECT_EQ(set->files().size(), 2u);
  EXPECT_EQ(static_cast<char>(set->tensor("b").data[0]), 'b');
  EXPECT_EQ(set->tensor("b").file, 1u);
  EXPECT_EQ(set->text_metadata().at("total_size"), "2");
}

TEST_F(SafetensorsIndexTest, RefusesWhatDoesNotFit) {
  for (const char* name : {"/etc/passwd", "../1.safetensors", "x/../1.safetensors", "./1.safetensors", "..", ".", "",
                           R"(a\\b)", R"(1.safetensors\u0000)"}) {
    EXPECT_ERROR(open(fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", name)), ErrorCode::kBadFile, "plain file name");
  }
  EXPECT_ERROR(open(R"({"weight_map":["a"]})"), ErrorCode::kBadFile, "isn't an object");
  EXPECT_ERROR(open(R"({"weight_map":{"a":1}})"), ErrorCode::kBadFile, "isn't a string");
  EXPECT_ERROR(open(R"({"weight_map":{"a":"3.safetensors"}})"), ErrorCode::kBadFile,
               "'3.safetensors' of the index is missing");
  EXPECT_ERROR(open(R"({"weight_map":{"a":"1.safetensors","c":"1.safetensors"}})"), ErrorCode::kBadFile,
               "promises 2 tensors");
  EXPECT_ERROR(open(R"({"weight_map":{"a":"2.safetensors"}})"), ErrorCode::kBadFile, "promises 1 tensors");
  EXPECT_ERROR(open(R"({"weight_map":{"a":"1.safetensors","a":"2.safetensors"}})"), ErrorCode::kBadFile, "twice");
  EXPECT_ERROR(open(R"({"weight_map":{"a":)" + std::string(1000, '[')), ErrorCode::kBadFile, "nested deeper");
}

}  // namespace
}  // namespace backplane::formats
