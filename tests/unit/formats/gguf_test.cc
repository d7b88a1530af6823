#include "core/formats/gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/support/expect_error.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/temp_folder.h"

namespace backplane::formats {
namespace {

using test::Bytes;
using test::GgufBuilder;

class GgufTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Gguf> open(const GgufBuilder& builder) { return open_bytes(builder.build()); }
  std::shared_ptr<const Gguf> open_bytes(std::string_view bytes) { return Gguf::open(folder_.write("m.gguf", bytes)); }
  void expect_refused(const GgufBuilder& builder, const char* part) { expect_bytes_refused(builder.build(), part); }
  void expect_bytes_refused(std::string_view bytes, const char* part) {
    EXPECT_ERROR(open_bytes(bytes), ErrorCode::kBadFile, part);
    EXPECT_ERROR(open_bytes(bytes), ErrorCode::kBadFile, "m.gguf");
  }

  test::TempFolder folder_;
};

GgufBuilder small() {
  GgufBuilder builder;
  builder.string("general.architecture", "llama").u32("llama.block_count", 2);
  builder.f32_tensor("a", {3, 2}, {1, 2, 3, 4, 5, 6}).f32_tensor("b", {2}, {7, 8});
  return builder;
}

TEST_F(GgufTest, ReadsTensorsOutermostFirst) {
  const auto gguf = open(small());
  EXPECT_EQ(gguf->format(), "gguf");
  EXPECT_EQ(gguf->architecture(), "llama");
  EXPECT_EQ(gguf->version(), 3u);
  ASSERT_EQ(gguf->tensors().size(), 2u);
  const TensorInfo& a = gguf->tensor("a");
  EXPECT_EQ(a.shape, (std::vector<std::uint64_t>{2, 3}));  // two rows of three
  EXPECT_EQ(a.type, DType::kF32);
  EXPECT_EQ(a.type_name, "F32");
  EXPECT_EQ(a.elements(), 6u);
  ASSERT_EQ(a.data.size(), 24u);
  float second_row[3];
  std::memcpy(second_row, a.data.data() + 12, sizeof second_row);
  EXPECT_EQ(second_row[0], 4);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(gguf->find("b")->data.data()) % 32, 0u);
  EXPECT_EQ(gguf->find("c"), nullptr);
  EXPECT_ERROR(gguf->tensor("c"), ErrorCode::kBadFile, "'c' is missing");
}

TEST_F(GgufTest, KeepsValuesOfEveryType) {
  GgufBuilder builder;
  builder.raw("u8", 0, "\xff").raw("i8", 1, "\xff").u16("u16", 65535).raw("i16", 3, "\xfe\xff");
  builder.u32("u32", 4294967295u).i32("i32", -5).u64("u64", UINT64_MAX).i64("i64", INT64_MIN);
  builder.f32("f32", 0.5f).f64("f64", 1e300).boolean("yes", true).string("text", "d\xc3\xa9j\xc3\xa0");
  const auto gguf = open(builder);
  EXPECT_EQ(gguf->get_u64("u8"), 255u);
  EXPECT_EQ(gguf->get_i64("i8"), -1);
  EXPECT_EQ(gguf->get_u64("u16"), 65535u);
  EXPECT_EQ(gguf->get_i64("i16"), -2);
  EXPECT_EQ(gguf->get_u64("u32"), 4294967295u);
  EXPECT_EQ(gguf->get_i64("i32"), -5);
  EXPECT_EQ(gguf->get_u64("u64"), UINT64_MAX);
  EXPECT_EQ(gguf->get_i64("i64"), INT64_MIN);
  EXPECT_EQ(gguf->get_f64("f32"), 0.5);
  EXPECT_EQ(gguf->get_f64("f64"), 1e300);
  EXPECT_EQ(gguf->get_f64("i32"), -5.0);
  EXPECT_TRUE(gguf->get_bool("yes"));
  EXPECT_EQ(gguf->get_string("text"), "d\xc3\xa9j\xc3\xa0");
  EXPECT_EQ(gguf->get_u64("none", 7), 7u);
  EXPECT_FALSE(gguf->find_string("none"));
}

TEST_F(GgufTest, NamesKeyAndFileWhenTheKindIsWrong) {
  GgufBuilder builder;
  builder.i32("negative", -1).string("text", "7").f32("real", 7).strings("list", {"a"}).u64("large", UINT64_MAX);
  const auto gguf = open(builder);
  EXPECT_ERROR(gguf->get_u64("negative"), ErrorCode::kBadFile,
               "'negative' should be an unsigned integer, not i32 (-1)");
  EXPECT_ERROR(gguf->get_u64("text"), ErrorCode::kBadFile, "not string");
  EXPECT_ERROR(gguf->get_u64("real"), ErrorCode::kBadFile, "'real'");
  EXPECT_ERROR(gguf->get_i64("large"), ErrorCode::kBadFile, "'large'");
  EXPECT_ERROR(gguf->get_f64("text"), ErrorCode::kBadFile, "'text'");
  EXPECT_ERROR(gguf->get_bool("real"), ErrorCode::kBadFile, "'real'");
  EXPECT_ERROR(gguf->get_string("list"), ErrorCode::kBadFile, "array of string");
  EXPECT_ERROR(gguf->get_array("text"), ErrorCode::kBadFile, "should be an array");
  EXPECT_ERROR(gguf->integer_array("list"), ErrorCode::kBadFile, "array of integers");
  EXPECT_ERROR(gguf->get_u64("absent"), ErrorCode::kBadFile, "'absent' is missing");
  EXPECT_ERROR(gguf->get_u64("text", 3), ErrorCode::kBadFile, "m.gguf");
}

TEST_F(GgufTest, ReadsArraysInPlace) {
  GgufBuilder builder;
  builder.strings("words", {"a", "", std::string("\xff\0z", 3)}).array<std::int32_t>("ids", 5, {-1, 2});
  builder.array<float>("scores", 6, {0.5f, -2}).array<std::uint8_t>("flags", 7, {0, 1});
  builder.array<std::uint64_t>("large", 10, {1, UINT64_MAX}).strings("empty", {});
  const auto gguf = open(builder);
  const auto words = gguf->string_array("words");
  ASSERT_EQ(words.size(), 3u);
  EXPECT_EQ(words[2], std::string_view("\xff\0z", 3));
  const auto mapping = gguf->files()[0].bytes();
  EXPECT_GE(static_cast<const void*>(words[0].data()), mapping.data());
  EXPECT_LT(static_cast<const void*>(words[0].data()), mapping.data() + mapping.size());
  EXPECT_EQ(gguf->integer_array("ids"), (std::vector<std::int64_t>{-1, 2}));
  EXPECT_EQ(gguf->number_array("ids"), (std::vector<double>{-1, 2}));
  EXPECT_EQ(gguf->number_array("scores"), (std::vector<double>{0.5, -2}));
  EXPECT_EQ(gguf->get_array("flags").booleans(), (std::vector<std::uint8_t>{0, 1}));
  EXPECT_FALSE(gguf->get_array("large").integers());
  EXPECT_EQ(gguf->get_array("large").integers(1), (std::vector<std::int64_t>{1}));
  EXPECT_TRUE(gguf->string_array("empty").empty());
  EXPECT_TRUE(gguf->string_array("absent").empty());
}

TEST_F(GgufTest, ShowsMetadataAsJson) {
  GgufBuilder builder;
  builder.string("bad", "a\xff").f32("nan", NAN).array<std::int32_t>("ids", 5, {1, 2, 3}).strings("words", {"x", "y"});
  const auto json = open(builder)->metadata(2);
  EXPECT_EQ(json["bad"], "a\xef\xbf\xbd");
  EXPECT_TRUE(json["nan"].is_null());
  EXPECT_EQ(json["ids"], (nlohmann::json{{"type", "i32"}, {"length", 3}, {"first", {1, 2}}}));
  EXPECT_EQ(json["words"], (nlohmann::json{"x", "y"}));
}

TEST_F(GgufTest, ListsTypesItCannotCompute) {
  GgufBuilder builder;
  builder.tensor("iq", 17, {256}, std::string(74, 'x')).tensor("tq", 34, {512, 1}, std::string(108, 'y'));
  builder.tensor("k", 12, {256}, std::string(144, 'z'));
  const auto gguf = open(builder);
  EXPECT_EQ(gguf->tensor("iq").type_name, "IQ2_XS");
  EXPECT_FALSE(gguf->tensor("iq").type);
  EXPECT_EQ(gguf->tensor("iq").data.size(), 74u);
  EXPECT_EQ(gguf->tensor("tq").type_name, "TQ1_0");
  EXPECT_EQ(gguf->tensor("tq").data.size(), 108u);
  EXPECT_EQ(gguf->tensor("k").type, DType::kQ4_K);
}

TEST_F(GgufTest, HonorsTheAlignment) {
  GgufBuilder builder;
  builder.alignment = 64;
  builder.u32("general.alignment", 64).f32_tensor("a", {1}, {1}).f32_tensor("b", {1}, {2});
  const auto gguf = open(builder);
  EXPECT_EQ(gguf->tensor("b").data.data() - gguf->tensor("a").data.data(), 64);
  for (const std::uint32_t wrong : {0u, 3u, 4u, 24u, 1u << 31}) {
    GgufBuilder bad;
    bad.u32("general.alignment", wrong).f32_tensor("a", {1}, {1});
    expect_refused(bad, "general.alignment");
  }
  GgufBuilder text;
  text.string("general.alignment", "32");
  expect_refused(text, "general.alignment");
}

TEST_F(GgufTest, AcceptsVersion2GapsScalarsAndTrailingBytes) {
  GgufBuilder builder;
  builder.version = 2;
  builder.tensor_at("scalar", 0, {}, std::string(64, '\0'), 0).tensor_at("late", 0, {1}, std::string(8, '\0'), 64);
  builder.tensor_at("nothing", 0, {0, 4}, "", 32);
  const auto gguf = open_bytes(builder.build() + "trailing");
  EXPECT_EQ(gguf->version(), 2u);
  EXPECT_EQ(gguf->tensor("scalar").elements(), 1u);
  EXPECT_EQ(gguf->tensor("scalar").data.size(), 4u);
  EXPECT_EQ(gguf->tensor("nothing").elements(), 0u);
}

TEST_F(GgufTest, RefusesBadHeaders) {
  const std::string good = small().build();
  for (std::size_t size = 4; size < good.size(); ++size) expect_bytes_refused(good.substr(0, size), "file");
  GgufBuilder builder = small();
  builder.version = 0x03000000;
  expect_refused(builder, "big-endian");
  builder.version = 1;
  expect_refused(builder, "version 1");
  builder.version = 3;
  builder.extra_keys = 1'000'000'000'000;
  expect_refused(builder, "metadata keys, more than the file can hold");
  builder.extra_keys = 0;
  builder.extra_tensors = 1ull << 61;
  expect_refused(builder, "tensors, more than the file can hold");
}

TEST_F(GgufTest, RefusesBadKeysAndValues) {
  expect_refused(GgufBuilder().u32("a", 1).u32("b", 2).u32("a", 3), "'a' is there twice");
  expect_refused(GgufBuilder().u32("a\xff", 1), "UTF-8");
  expect_refused(GgufBuilder().u32("", 1), "empty");
  expect_refused(GgufBuilder().u32(std::string(65536, 'k'), 1), "longer than");
  expect_refused(GgufBuilder().raw("a", 13, "12345678"), "unknown type 13");
  expect_refused(GgufBuilder().raw("a", 7, "\x02"), "boolean");
  expect_refused(GgufBuilder().raw("a", 8, Bytes().put(UINT64_MAX).str()), "file ends inside");
  const auto array = [](std::uint32_t type, std::uint64_t count) {
    return GgufBuilder().raw("a", 9, Bytes().put(type).put(count).raw("12345678").str());
  };
  expect_refused(array(4, 1ull << 62), "more than the file can hold");
  expect_refused(array(10, 1ull << 61), "more than the file can hold");
  expect_refused(array(8, 1ull << 40), "file ends inside");
  expect_refused(array(9, 1), "arrays inside an array");
  expect_refused(array(99, 1), "unknown type 99");
  expect_refused(GgufBuilder().u32("general.architecture", 1), "general.architecture");
  expect_refused(GgufBuilder().string("general.architecture", ""), "general.architecture");
}

TEST_F(GgufTest, RefusesBadTensors) {
  const std::string block(256, 'x');
  expect_refused(GgufBuilder().f32_tensor("a", {1}, {1}).f32_tensor("a", {1}, {1}), "'a'");
  expect_refused(GgufBuilder().f32_tensor("", {1}, {1}), "no name");
  expect_refused(GgufBuilder().f32_tensor("\xc0\x80", {1}, {1}), "UTF-8");
  expect_refused(GgufBuilder().f32_tensor(std::string(300, 'n'), {1}, {1}), "longer than");
  expect_refused(GgufBuilder().f32_tensor("a", {1, 1, 1, 1, 1}, {1}), "5 dimensions");
  for (const std::uint32_t type : {4u, 31u, 36u, 255u, UINT32_MAX}) {
    expect_refused(GgufBuilder().tensor("a", type, {32}, block), "unknown type");
  }
  expect_refused(GgufBuilder().tensor("a", 12, {128}, block), "rows of 128");
  expect_refused(GgufBuilder().tensor("a", 2, {16, 2}, block), "rows of 16");
  expect_refused(GgufBuilder().tensor("a", 0, {1ull << 63}, block), "overflows");
  expect_refused(GgufBuilder().tensor("a", 0, {1ull << 32, 1ull << 32}, block), "overflows");
  expect_refused(GgufBuilder().tensor("a", 0, {1ull << 62, 4, 0}, block), "overflows");
  expect_refused(GgufBuilder().tensor("a", 0, {1ull << 40}, block), "past the end");
  expect_refused(GgufBuilder().tensor_at("a", 0, {1}, block, 1ull << 63), "past the end");
  expect_refused(GgufBuilder().tensor_at("a", 0, {1}, block, UINT64_MAX - 31), "past the end");
  expect_refused(GgufBuilder().tensor_at("a", 0, {1}, block, 8), "alignment");
  expect_refused(GgufBuilder().tensor_at("a", 0, {9}, block, 0).tensor_at("b", 0, {1}, block, 32), "overlap");
  expect_refused(GgufBuilder().tensor_at("a", 0, {1}, block, 32).tensor_at("b", 0, {1}, block, 32), "overlap");
}

}  // namespace
}  // namespace backplane::formats
