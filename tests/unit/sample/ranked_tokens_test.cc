#include "core/sample/ranked_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace backplane::sample {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<TokenId> whole_sort(const std::vector<double>& values) {
  std::vector<TokenId> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto value = [&](TokenId id) { return values[static_cast<std::size_t>(id)]; };
  const auto nans =
      std::stable_partition(order.begin(), order.end(), [&](TokenId id) { return !std::isnan(value(id)); });
  std::stable_sort(order.begin(), nans, [&](TokenId a, TokenId b) { return value(a) > value(b); });
  return order;
}

// Rows that spread well, and rows that don't: ties, outliers on both sides, infinities, tiny and huge distances.
std::vector<std::vector<double>> rows() {
  std::mt19937 random(3);
  std::normal_distribution<double> normal(0, 3);
  std::vector<std::vector<double>> out{{}, {1}, {kNan}, {-kInfinity, -kInfinity}, {kNan, -kInfinity, 5, kInfinity}};
  for (const double scale : {1.0, 1e-300, 1e300, 1e-12}) {
    std::vector<double> row(3000);
    for (double& value : row) value = normal(random) * scale;
    out.push_back(row);
    row[1234] = 1e9;
    out.push_back(row);
    row[77] = -1e9;
    row[78] = row[80] = -kInfinity;
    out.push_back(row);
    row[5] = row[2999] = kNan;
    out.push_back(row);
  }
  std::vector<double> ties(5000);
  for (double& value : ties) value = static_cast<double>(random() % 300);
  out.push_back(ties);
  out.emplace_back(4000, 2.5);
  return out;
}

TEST(RankedTokens, AreInTheOrderOfAWholeSort) {
  for (const std::vector<double>& row : rows()) {
    const std::vector<TokenId> order = whole_sort(row);
    RankedTokens one_by_one(row);
    for (std::size_t i = 0; i < row.size(); ++i) ASSERT_EQ(one_by_one[i], order[i]) << i << " of " << row.size();
    for (const std::size_t i : {std::size_t{0}, row.size() / 3, row.size() - 1}) {
      if (i < row.size()) {
        EXPECT_EQ(RankedTokens(row)[i], order[i]);
      }
    }
  }
}

TEST(RankedTokens, BucketsAreRunsOfRanks) {
  for (const std::vector<double>& row : rows()) {
    for (const double reach : {64.0, 1e-3, 1e-290, 1e300}) {
      const std::vector<TokenId> order = whole_sort(row);
      const RankedTokens ranked(row, reach);
      std::size_t rank = 0;
      for (std::size_t bucket = 0; bucket < RankedTokens::kBuckets; ++bucket) {
        const auto ids = ranked.first_of_bucket(bucket, row.size());
        ASSERT_EQ(ids.size(), ranked.bucket_size(bucket));
        for (const TokenId id : ids) {
          ASSERT_EQ(id, order[rank++]);
          ASSERT_EQ(ranked.bucket_of(id), bucket);
          ASSERT_EQ(ranked.bucket_for(row[static_cast<std::size_t>(id)]), bucket);
        }
      }
      EXPECT_EQ(rank, row.size());
    }
  }
}

TEST(RankedTokens, GivesTheBeginningOfABucket) {
  const std::vector<double> row(100, 1.0);
  EXPECT_EQ(RankedTokens(row).first_of_bucket(0, 3), (std::vector<TokenId>{0, 1, 2}));
}

}  // namespace
}  // namespace backplane::sample
