#include "tools/lab/work.h"

#include <gtest/gtest.h>

#include "tests/support/devices.h"
#include "tests/support/tiny_hf_model.h"
#include "tests/support/tiny_model.h"

namespace backplane::lab {
namespace {

// The tiny Llama: hidden 32, 4 heads over 2 KV heads of 8, feed-forward 64, vocabulary 96, 2 layers, all F32.
constexpr double kLayerElements = 32 * 32 + 2 * 16 * 32 + 32 * 32 + 3 * 64 * 32;
constexpr double kHeadElements = 96 * 32;

class WorkTest : public ::testing::Test {
 protected:
  test::TempFolder folder_;
  std::shared_ptr<device::Device> device_ = test::open_device("cpu:f32");
  models::ModelFile file_{test::write_tiny_llama(folder_)};
  StepWork work_{file_, *device_, DType::kF32};
};

TEST_F(WorkTest, CountsArithmetic) {
  EXPECT_EQ(work_.token_flops(), 2 * 2 * kLayerElements);
  EXPECT_EQ(work_.row_flops(), 2 * kHeadElements);
  const double key = 2 * (2 * 4 * (8 + 8));  // in both layers
  EXPECT_EQ(work_.attention_flops_per_key(), key);
  EXPECT_EQ(work_.attention_flops(0, 4), key * (1 + 2 + 3 + 4));
  EXPECT_EQ(work_.attention_flops(10, 1), key * 11);
  EXPECT_EQ(work_.of({.past = 3, .tokens = 2, .rows = 1}).flops,
            2 * work_.token_flops() + work_.row_flops() + key * (4 + 5));
}

TEST_F(WorkTest, CountsBytes) {
  const double kv = 2 * 2 * (8 + 8) * 4;  // of a token, in both layers
  EXPECT_EQ(work_.kv_bytes_per_token(), kv);
  EXPECT_EQ(work_.layer_bytes(), 2 * kLayerElements * 4);
  EXPECT_EQ(work_.head_bytes(), kHeadElements * 4);
  EXPECT_EQ(work_.logits_row_bytes(), 96 * 4);
  const double embedding = 32 * 4;
  EXPECT_EQ(work_.of({.past = 3, .tokens = 2, .rows = 1}).bytes,
            work_.layer_bytes() + work_.head_bytes() + 2 * embedding + 96 * 4 + kv * (3 + 2));
  EXPECT_EQ(work_.of({.past = 0, .tokens = 5, .rows = 0}).bytes, work_.layer_bytes() + 5 * embedding + kv * 5);
  EXPECT_EQ(work_.smallest_window(), 0u);
}

TEST_F(WorkTest, CountsQuantizedMatricesAsTheyAreStored) {
  const test::TempFolder other;
  const models::ModelFile file(test::write_tiny_llama(other, {.type = test::TinyType::kQ8_0}));
  const StepWork work(file, *device_, DType::kF16);
  EXPECT_EQ(work.token_flops(), work_.token_flops());
  EXPECT_EQ(work.layer_bytes(), 2 * kLayerElements * 34 / 32);  // blocks of 32 values in 34 bytes
  EXPECT_EQ(work.kv_bytes_per_token(), work_.kv_bytes_per_token() / 2);
}

TEST_F(WorkTest, CountsWindows) {
  const test::TempFolder other;
  const models::ModelFile file(test::write_tiny_hf(other, test::TinyHf::kMistral));  // both layers see 7 tokens
  const StepWork work(file, *device_, DType::kF32);
  EXPECT_EQ(work.smallest_window(), 7u);
  const double key = work.attention_flops_per_key();
  EXPECT_EQ(work.attention_flops(0, 3), key * (1 + 2 + 3));
  EXPECT_EQ(work.attention_flops(5, 3), key * (6 + 7 + 7));
  EXPECT_EQ(work.attention_flops(100, 1), key * 7);
  const double more = work.of({.past = 100, .tokens = 1, .rows = 1}).bytes;
  EXPECT_EQ(work.of({.past = 50, .tokens = 1, .rows = 1}).bytes, more);  // behind the window nothing is read
}

}  // namespace
}  // namespace backplane::lab
