#include "core/sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/sample/philox.h"

namespace backplane::sample {
namespace {

// The probabilities that the definition gives, written down as plainly as it reads: sort everything, filter in turn.
std::vector<double> exact_probabilities(const std::vector<double>& logits, const SamplingParams& p) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  if (p.top_k > 0 && static_cast<std::size_t>(p.top_k) < order.size()) order.resize(static_cast<std::size_t>(p.top_k));
  const auto softmax = [&] {
    std::vector<double> out(logits.size(), 0.0);
    double sum = 0;
    for (const std::size_t i : order) sum += out[i] = std::exp(logits[i] / p.temperature);
    for (double& value : out) value /= sum;
    return out;
  };
  std::vector<double> probability = softmax();
  double reached = 0;
  std::size_t n = 0;
  while (n < order.size() && (p.top_p >= 1 || n == 0 || reached < p.top_p)) reached += probability[order[n++]];
  order.resize(n);
  std::erase_if(order, [&, best = probability[order[0]]](std::size_t i) { return probability[i] < p.min_p * best; });
  return softmax();
}

TokenId exact_draw(const std::vector<double>& logits, const SamplingParams& p, std::uint64_t counter) {
  std::vector<double> probability = exact_probabilities(logits, p);
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  const double u = uniform(p.seed, counter);
  double cumulated = 0;
  for (const std::size_t i : order) {
    cumulated += probability[i];
    if (cumulated > u) return static_cast<TokenId>(i);
  }
  return -1;
}

std::string usage_error(const SamplingParams& params) {
  try {
    Sampler sampler(params);
  } catch (const Error& e) {
    return e.code() == ErrorCode::kUsage ? e.what() : "wrong code";
  }
  return "";
}

TEST(SamplingParams, AreRefusedByName) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(usage_error({}), "");
  EXPECT_EQ(usage_error({.temperature = 2, .top_k = 5, .top_p = 0, .min_p = 1}), "");
  for (const double bad : {-0.1, nan, infinity}) {
    EXPECT_EQ(usage_error({.temperature = bad}).rfind("temperature can't be", 0), 0u) << bad;
  }
  EXPECT_EQ(usage_error({.top_k = -1}).rfind("top_k can't be -1", 0), 0u);
  for (const double bad : {-0.1, 1.1, nan}) {
    EXPECT_EQ(usage_error({.top_p = bad}).rfind("top_p can't be", 0), 0u) << bad;
    EXPECT_EQ(usage_error({.min_p = bad}).rfind("min_p can't be", 0), 0u) << bad;
  }
}

TEST(Sampler, GreedyTakesTheLowestIdOfEqualLogits) {
  const std::vector<double> logits{1, 4, 2, 4, 4};
  EXPECT_EQ(Sampler({}).sample(logits, 0), 1);
  EXPECT_EQ(Sampler({.temperature = 1, .top_k = 1}).sample(logits, 9), 1);
  EXPECT_EQ(Sampler({.temperature = 1, .top_p = 0}).sample(logits, 9), 1);
  EXPECT_EQ(Sampler({.temperature = 1e-300}).sample(std::vector<double>{1, 4, 2}, 9), 1);
}

TEST(Sampler, NanIsAnErrorNotAToken) {
  std::vector<double> logits(8, 1.0);
  logits[6] = std::numeric_limits<double>::quiet_NaN();
  for (const double temperature : {0.0, 1.0}) {
    EXPECT_THROW(Sampler({.temperature = temperature}).sample(logits, 0), Error);
  }
}

TEST(Sampler, NeverDrawsAnImpossibleToken) {
  std::vector<double> logits(100, -std::numeric_limits<double>::infinity());
  logits[17] = 3;
  logits[63] = 3;
  const Sampler sampler({.temperature = 0.7, .seed = 5});
  int seventeen = 0;
  for (std::uint64_t c = 0; c < 200; ++c) {
    const TokenId id = sampler.sample(logits, c);
    ASSERT_TRUE(id == 17 || id == 63) << id;
    seventeen += id == 17;
  }
  EXPECT_GT(seventeen, 60);
  EXPECT_LT(seventeen, 140);
}

TEST(Sampler, DrawsWhatThePlainDefinitionDraws) {
  std::mt19937 random(11);
  std::normal_distribution<double> normal(0, 3);
  const double top_ps[] = {1, 0.95, 0.5, 0.01}, min_ps[] = {0, 0.05, 0.5}, temperatures[] = {0.3, 1, 4};
  const std::int32_t top_ks[] = {0, 1, 7, 300, 5000};
  int differ = 0, draws = 0;
  for (const std::size_t vocabulary : {3u, 90u, 1500u}) {
    std::vector<double> logits(vocabulary);
    for (double& value : logits) value = std::round(normal(random) * 4) / 4;  // ties
    for (const double temperature : temperatures) {
      for (const std::int32_t top_k : top_ks) {
        for (const double top_p : top_ps) {
          for (const double min_p : min_ps) {
            const SamplingParams p{temperature, top_k, top_p, min_p, random()};
            for (std::uint64_t c = 0; c < 3; ++c, ++draws) {
              differ += Sampler(p).sample(logits, c) != exact_draw(logits, p, c);
            }
          }
        }
      }
    }
  }
  // Sums in another order may round differently, which would show only where u falls on a border.
  EXPECT_EQ(differ, 0) << "of " << draws;
}

TEST(Sampler, FrequenciesMatchTheExactProbabilities) {
  const std::vector<double> logits{0.1, 2.0, -1.0, 1.5, 1.5, 0.0, -3.0, 0.7};
  for (const SamplingParams& p :
       {SamplingParams{.temperature = 1, .seed = 1}, SamplingParams{.temperature = 0.6, .top_k = 6, .seed = 2},
        SamplingParams{.temperature = 1.3, .top_p = 0.8, .seed = 3},
        SamplingParams{.temperature = 1, .min_p = 0.2, .seed = 4}}) {
    constexpr int kDraws = 60'000;
    const std::vector<double> probability = exact_probabilities(logits, p);
    std::vector<int> counts(logits.size());
    const Sampler sampler(p);
    for (int c = 0; c < kDraws; ++c)
      ++counts[static_cast<std::size_t>(sampler.sample(logits, static_cast<std::uint64_t>(c)))];
    double chi2 = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double expected = probability[i] * kDraws;
      if (expected == 0) {
        EXPECT_EQ(counts[i], 0) << "token " << i << " was filtered out";
      } else {
        chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
      }
    }
    EXPECT_LT(chi2, 24.3) << "seed " << p.seed;  // the 0.999 quantile for 7 degrees of freedom
  }
}

TEST(Sampler, IsAFunctionOfSeedAndCounter) {
  std::vector<double> logits(50);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<double>(i));
  const Sampler a({.temperature = 2, .seed = 8}), b({.temperature = 2, .seed = 8}), c({.temperature = 2, .seed = 9});
  int same = 0;
  for (std::uint64_t n = 0; n < 64; ++n) {
    EXPECT_EQ(a.sample(logits, 63 - n), b.sample(logits, 63 - n));
    same += a.sample(logits, n) == c.sample(logits, n);
  }
  EXPECT_LT(same, 20);
}

}  // namespace
}  // namespace backplane::sample
