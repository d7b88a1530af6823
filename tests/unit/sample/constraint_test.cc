#include "core/sample/constraint.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/sample/sampler.h"

namespace backplane::sample {
namespace {

// The ids that are left of a row of eight.
std::vector<TokenId> left_by(const Constraint& constraint) {
  std::vector<double> row{0, 1, 2, 3, 4, 5, 6, 7};
  constraint.mask(row);
  std::vector<TokenId> left;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (std::isinf(row[i])) continue;
    EXPECT_EQ(row[i], static_cast<double>(i)) << "changed";
    left.push_back(static_cast<TokenId>(i));
  }
  return left;
}

using Ids = std::vector<TokenId>;

TEST(Constraint, OnlyTheAllowed) {
  const auto some = only({5, 2, 5});
  EXPECT_EQ(left_by(*some), (Ids{2, 5}));
  some->accept(2);
  EXPECT_EQ(left_by(*some), (Ids{2, 5}));
  EXPECT_EQ(left_by(*only({7, 0})), (Ids{0, 7}));
}

TEST(Constraint, NoneBeforeSoManyTokens) {
  const auto none = none_before({1, 6}, 2);
  for (int n = 0; n < 2; ++n, none->accept(3)) EXPECT_EQ(left_by(*none), (Ids{0, 2, 3, 4, 5, 7}));
  for (int n = 0; n < 3; ++n, none->accept(3)) EXPECT_EQ(left_by(*none), (Ids{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(left_by(*none_before({-1, 8, 1'000'000'000, 4}, 1)), (Ids{0, 1, 2, 3, 5, 6, 7}));
}

TEST(Constraint, NoWordIsCompleted) {
  const Ids prompt{4, 2};
  const auto none = no_words({{3}, {2, 1}, {4, 2, 6}, {5, 5, 5, 5}}, prompt);
  EXPECT_EQ(left_by(*none), (Ids{0, 2, 4, 5, 7}));  // the prompt ends with the beginning of two words
  for (const TokenId id : {5, 5}) none->accept(id);
  EXPECT_EQ(left_by(*none), (Ids{0, 1, 2, 4, 5, 6, 7}));
  none->accept(5);
  EXPECT_EQ(left_by(*none), (Ids{0, 1, 2, 4, 6, 7}));
  none->accept(2);
  EXPECT_EQ(left_by(*none), (Ids{0, 2, 4, 5, 6, 7}));
  EXPECT_EQ(left_by(*no_words({{1, 2, 3}}, Ids{2})), (Ids{0, 1, 2, 3, 4, 5, 6, 7}));  // less text than the word
}

// Tokens until the end token 0 comes, which the model wants at once.
std::size_t tokens_until_end(std::uint32_t min_tokens, const Ids& prompt, const SamplingParams& params = {}) {
  Sampler sampler(params, {.prompt = prompt, .end_ids = {0}, .min_tokens = min_tokens});
  for (std::size_t n = 1;; ++n) {
    const TokenId id = sampler.sample(std::vector<double>{9, 1, 2, 3});
    if (id == 0) return n;
    sampler.accept(id);
  }
}

// https://github.com/vllm-project/vllm/pull/46243: one token too many, which showed with a logit_bias of 100.
TEST(Constraint, MinTokensIsExact) {
  for (const std::uint32_t min_tokens : {0u, 1u, 2u, 17u}) {
    EXPECT_EQ(tokens_until_end(min_tokens, {1}), min_tokens + 1);
    EXPECT_EQ(tokens_until_end(min_tokens, {1}, {.logit_bias = {{0, 100}}}), min_tokens + 1);
  }
}

// https://github.com/NVIDIA/TensorRT-LLM/pull/12358: the prompt's tokens counted, so that a long one disabled it.
TEST(Constraint, MinTokensDoesNotCountThePrompt) { EXPECT_EQ(tokens_until_end(5, Ids(100, 1)), 6u); }

// The same report: without an end token, the last one of the vocabulary was forbidden instead.
TEST(Constraint, MinTokensWithoutEndTokensForbidsNothing) {
  Sampler sampler({}, {.prompt = Ids{1}, .end_ids = {}, .min_tokens = 5});
  EXPECT_EQ(sampler.sample(std::vector<double>{1, 2, 3, 9}), 3);
}

}  // namespace
}  // namespace backplane::sample
