#include "core/sample/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
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
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(token_logprob(logits, i), std::log((i + 1) / 10.0), 1e-10);
  }
}

TEST(Logprobs, SumsLongRows) {
  std::mt19937 random(9);
  for (const std::size_t size : {1u, 7u, 511u, 512u, 513u, 40'000u}) {
    std::vector<double> logits(size);
    long double sum = 0;
    for (double& logit : logits) {
      logit = static_cast<double>(random()) / 2e8;  // up to 21
      sum += std::exp(static_cast<long double>(logit));
    }
    EXPECT_NEAR(log_sum_exp(logits), static_cast<double>(std::log(sum)), 1e-13);
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

TEST(Logprobs, ReportsTheTokenWhereverItRanks) {
  const std::vector<double> logits{2, -kInfinity, 4, 3, -kInfinity};
  const TokenReport last = report_token(logits, 0, 2);
  EXPECT_EQ(last.logprob, token_logprob(logits, 0));
  EXPECT_EQ(last.top, (std::vector<TokenLogprob>{{2, token_logprob(logits, 2)}, {3, token_logprob(logits, 3)}}));
  EXPECT_TRUE(report_token(logits, 2, 0).top.empty());
  EXPECT_EQ(report_token(logits, 2, 0).logprob, token_logprob(logits, 2));
}

// https://github.com/sgl-project/sglang/issues/5984: more log-probabilities wanted than there are possible tokens gave
// minus infinity, which JSON can't hold.
TEST(Logprobs, MinusInfinityIsNotAmongTheTop) {
  const std::vector<double> logits{2, -kInfinity, 4, 3, -kInfinity};
  const TokenReport report = report_token(logits, 3, 5);
  ASSERT_EQ(report.top.size(), 3u);
  for (const TokenLogprob& each : report.top) EXPECT_TRUE(std::isfinite(each.logprob));
}

}  // namespace
}  // namespace backplane::sample
