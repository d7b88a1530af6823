#include "core/sample/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "core/base/error.h"

namespace backplane::sample {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Logprobs, AreTheLogarithmsOfTheSoftmax) {
  // ln of 1/10, 2/10, 3/10 and 4/10, shifted by a constant that must not matter, even a huge one.
  for (const double shift : {0.0, 700.0, 1e5, -1e5}) {
    const std::vector<double> logits{std::log(1.0) + shift, std::log(2.0) + shift, std::log(3.0) + shift,
                                     std::log(4.0) + shift};
    const auto logprobs = log_softmax(logits);
    for (int i = 0; i < 4; ++i) {
      EXPECT_NEAR(logprobs[static_cast<std::size_t>(i)], std::log((i + 1) / 10.0), 1e-10);
      EXPECT_EQ(logprobs[static_cast<std::size_t>(i)], token_logprob(logits, i));
    }
  }
}

TEST(Logprobs, AnImpossibleTokenIsMinusInfinity) {
  const std::vector<double> logits{0, -kInfinity, 0};
  check_logits(logits);
  EXPECT_EQ(token_logprob(logits, 1), -kInfinity);
  EXPECT_NEAR(token_logprob(logits, 0), -std::log(2.0), 1e-15);
}

TEST(Logprobs, CheckNamesTheBrokenToken) {
  for (const double bad : {kNan, kInfinity}) {
    const std::vector<double> logits{1, 2, 3, bad};
    try {
      check_logits(logits);
      FAIL() << bad;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kDevice);
      EXPECT_NE(std::string(e.what()).find("token 3"), std::string::npos) << e.what();
    }
  }
  EXPECT_THROW(check_logits(std::vector<double>{-kInfinity, -kInfinity}), Error);
}

TEST(Logprobs, TopPutsTheLowestOfEqualIdsFirst) {
  const std::vector<double> logits{1, 5, kNan, 5, -kInfinity, 7};
  const auto top = top_logits(logits, 3);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0], (TokenLogit{5, 7}));
  EXPECT_EQ(top[1], (TokenLogit{1, 5}));
  EXPECT_EQ(top[2], (TokenLogit{3, 5}));
  const auto all = top_logits(logits, 99);
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[4].id, 4);
  EXPECT_EQ(all[5].id, 2);  // NaN is smaller than all
  EXPECT_TRUE(top_logits(logits, 0).empty());
}

TEST(Logprobs, TopIsThePrefixOfAWholeSort) {
  std::mt19937 random(3);
  std::vector<double> logits(5000);
  for (double& value : logits) value = static_cast<double>(random() % 300);  // many ties
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  for (const std::size_t k : {1u, 63u, 64u, 65u, 700u, 5000u}) {
    const auto top = top_logprobs(logits, k);
    ASSERT_EQ(top.size(), k);
    for (std::size_t i = 0; i < k; ++i) {
      ASSERT_EQ(top[i].id, order[i]) << i;
      ASSERT_EQ(top[i].logprob, token_logprob(logits, order[i]));
    }
  }
  RankedTokens ranked(logits);  // asked for one by one
  for (std::size_t i = 0; i < order.size(); ++i) ASSERT_EQ(ranked[i], order[i]);
}

}  // namespace
}  // namespace backplane::sample
