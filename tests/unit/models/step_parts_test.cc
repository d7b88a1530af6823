#include <gtest/gtest.h>

#include "models/phase_model.h"

namespace backplane {
namespace {

// Two decoding sequences of 1 and 2 tokens, one that prefills 3; two groups, two pages each.
sched::Step mixed_step() {
  sched::Step step;
  step.n_decode = 2;
  step.groups = 2;
  step.page_size = 4;
  step.max_pages = 2;
  step.max_q = 3;
  step.max_kv = 7;
  step.token = {10, 20, 21, 30, 31, 32};
  step.pos = {6, 2, 3, 0, 1, 2};
  step.rope_row = {0, 1, 1, 0, 0, 0};
  step.q_start = {0, 1, 3, 6};
  step.kv_len = {7, 4, 3};
  step.page_table = {0, 1, 2, -1, 3, -1, 5, 6, 7, -1, 8, -1};
  step.slot = {6, 10, 11, 12, 13, 14, 26, 30, 31, 32, 33, 34};
  step.out_row = {5, 0, 2};
  return step;
}

TEST(StepPartsTest, TakesSequencesApart) {
  std::vector<std::uint32_t> rows;
  const sched::Step decode = models::part_of_step(mixed_step(), 0, 2, rows);
  EXPECT_EQ(decode.n_decode, 2u);
  EXPECT_EQ(decode.token, (std::vector<TokenId>{10, 20, 21}));
  EXPECT_EQ(decode.q_start, (std::vector<std::int32_t>{0, 1, 3}));
  EXPECT_EQ(decode.kv_len, (std::vector<std::int32_t>{7, 4}));
  EXPECT_EQ(decode.page_table, (std::vector<std::int32_t>{0, 1, 2, -1, 5, 6, 7, -1}));
  EXPECT_EQ(decode.slot, (std::vector<std::int64_t>{6, 10, 11, 26, 30, 31}));
  EXPECT_EQ(decode.out_row, (std::vector<std::int32_t>{0, 2}));
  EXPECT_EQ(rows, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(decode.max_q, 2u);
  EXPECT_EQ(decode.max_kv, 7u);

  const sched::Step prefill = models::part_of_step(mixed_step(), 2, 3, rows);
  EXPECT_EQ(prefill.n_decode, 0u);
  EXPECT_EQ(prefill.pos, (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(prefill.q_start, (std::vector<std::int32_t>{0, 3}));
  EXPECT_EQ(prefill.page_table, (std::vector<std::int32_t>{3, -1, 8, -1}));
  EXPECT_EQ(prefill.slot, (std::vector<std::int64_t>{12, 13, 14, 32, 33, 34}));
  EXPECT_EQ(prefill.out_row, (std::vector<std::int32_t>{2}));
  EXPECT_EQ(rows, (std::vector<std::uint32_t>{0}));
}

}  // namespace
}  // namespace backplane
