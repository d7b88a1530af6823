#include <gtest/gtest.h>

#include <cstring>

#include "core/formats/container.h"
#include "core/formats/gguf.h"
#include "tests/support/expect_error.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/temp_folder.h"

namespace backplane::formats {
namespace {

using test::GgufBuilder;

GgufBuilder part(int number, int count, int tensors) {
  GgufBuilder builder;
  if (number == 0) builder.string("general.architecture", "llama").u32("llama.block_count", 1);
  builder.u16("split.no", static_cast<std::uint16_t>(number)).u16("split.count", static_cast<std::uint16_t>(count));
  builder.i32("split.tensors.count", tensors);
  return builder;
}

class GgufSplitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    first_ = folder_.write("big model-00001-of-00003.gguf", part(0, 3, 2).build());
    second_ = folder_.write("big model-00002-of-00003.gguf", part(1, 3, 2).f32_tensor("a", {1}, {1}).build());
    third_ = folder_.write("big model-00003-of-00003.gguf", part(2, 3, 2).f32_tensor("b", {1}, {2}).build());
  }

  test::TempFolder folder_;
  std::filesystem::path first_, second_, third_;
};

TEST_F(GgufSplitTest, AnyPartOpensTheSet) {
  for (const auto& path : {first_, second_, third_}) {
    const auto gguf = Gguf::open(path);
    EXPECT_EQ(gguf->architecture(), "llama");
    EXPECT_EQ(gguf->files().size(), 3u);
    ASSERT_EQ(gguf->tensors().size(), 2u);
    float b = 0;
    std::memcpy(&b, gguf->tensor("b").data.data(), sizeof b);
    EXPECT_EQ(b, 2);
    EXPECT_EQ(gguf->tensor("b").file, 2u);
    EXPECT_EQ(open_container(path)->tensors().size(), 2u);
  }
}

TEST_F(GgufSplitTest, MissingPart) {
  std::filesystem::remove(second_);
  EXPECT_ERROR(Gguf::open(first_), ErrorCode::kBadFile, "part 2 of 3 of the split model is missing");
}

TEST_F(GgufSplitTest, NamesThatDoNotFit) {
  const auto renamed = folder_.path() / "model.gguf";
  std::filesystem::copy(first_, renamed);
  EXPECT_ERROR(Gguf::open(renamed), ErrorCode::kBadFile, "its name doesn't say which");
  const auto swapped = folder_.path() / "other-00002-of-00003.gguf";
  std::filesystem::copy(first_, swapped);
  EXPECT_ERROR(Gguf::open(swapped), ErrorCode::kBadFile, "should be part 2 of 3");
}

TEST_F(GgufSplitTest, PartsThatDoNotAgree) {
  folder_.write(third_.filename(), part(2, 2, 2).f32_tensor("b", {1}, {2}).build());
  EXPECT_ERROR(Gguf::open(first_), ErrorCode::kBadFile, "split.count 2");
  folder_.write(third_.filename(), part(2, 3, 9).f32_tensor("b", {1}, {2}).build());
  EXPECT_ERROR(Gguf::open(first_), ErrorCode::kBadFile, "split.tensors.count");
  folder_.write(third_.filename(), part(2, 3, 2).build());
  EXPECT_ERROR(Gguf::open(first_), ErrorCode::kBadFile, "1 tensors instead of 2");
  folder_.write(third_.filename(), part(2, 3, 2).f32_tensor("a", {1}, {2}).build());
  EXPECT_ERROR(Gguf::open(first_), ErrorCode::kBadFile, "two tensors are named 'a'");
  folder_.write(third_.filename(), GgufBuilder().f32_tensor("b", {1}, {2}).build());
  EXPECT_ERROR(Gguf::open(first_), ErrorCode::kBadFile, "absent");
  folder_.write(third_.filename(), part(2, 3, 2).f32_tensor("b", {1}, {2}).string("split", "x").build().substr(0, 150));
  EXPECT_ERROR(Gguf::open(first_), ErrorCode::kBadFile, "00003-of-00003");
}

TEST_F(GgufSplitTest, OnePartAlone) {
  const auto path = folder_.write("single.gguf", part(0, 1, 1).f32_tensor("a", {1}, {1}).build());
  EXPECT_EQ(Gguf::open(path)->tensors().size(), 1u);
}

}  // namespace
}  // namespace backplane::formats
