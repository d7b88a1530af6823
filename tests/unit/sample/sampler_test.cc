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

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

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

// The token number `counter` of a request all of whose tokens so far were `before`.
TokenId draw(const SamplingParams& p, const std::vector<double>& logits, std::uint64_t counter, TokenId before = 0) {
  Sampler sampler(p);
  for (std::uint64_t n = 0; n < counter; ++n) sampler.accept(before);
  return sampler.sample(logits);
}

TEST(Sampler, GreedyTakesTheLowestIdOfEqualLogits) {
  const std::vector<double> logits{1, 4, 2, 4, 4};
  EXPECT_EQ(draw({}, logits, 0), 1);
  EXPECT_EQ(draw({.temperature = 1, .top_k = 1}, logits, 9), 1);
  EXPECT_EQ(draw({.temperature = 1, .top_p = 0}, logits, 9), 1);
}

// https://github.com/vllm-project/vllm/issues/13035: NaN became token 0, "!".
TEST(Sampler, NanIsAnErrorNotAToken) {
  std::vector<double> logits(8, 1.0);
  logits[6] = kNan;
  for (const double temperature : {0.0, 1.0}) {
    EXPECT_THROW(draw({.temperature = temperature}, logits, 0), Error);
    EXPECT_THROW(draw({.temperature = temperature}, {kInfinity, 0}, 0), Error);
    EXPECT_THROW(draw({.temperature = temperature}, {-kInfinity, -kInfinity}, 0), Error);
  }
}

TEST(Sampler, NeverDrawsAnImpossibleToken) {
  std::vector<double> logits(100, -kInfinity);
  logits[17] = 3;
  logits[63] = 3;
  Sampler sampler({.temperature = 0.7, .seed = 5});
  int seventeen = 0;
  for (int n = 0; n < 200; ++n, sampler.accept(0)) {
    const TokenId id = sampler.sample(logits);
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
            const SamplingParams p{
                .temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p, .seed = random()};
            for (std::uint64_t c = 0; c < 3; ++c, ++draws) {
              differ += draw(p, logits, c) != exact_draw(logits, p, c);
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
    Sampler sampler(p);
    for (int n = 0; n < kDraws; ++n, sampler.accept(0)) ++counts[static_cast<std::size_t>(sampler.sample(logits))];
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

TEST(Sampler, IsAFunctionOfSeedChoiceAndNumber) {
  std::vector<double> logits(50);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<double>(i));
  const auto draws = [&](std::uint64_t seed, std::uint32_t choice) {
    std::vector<TokenId> out;
    Sampler sampler({.temperature = 2, .seed = seed, .choice = choice});
    for (int n = 0; n < 64; ++n, sampler.accept(out.back())) out.push_back(sampler.sample(logits));
    return out;
  };
  const auto reference = draws(8, 0);
  EXPECT_EQ(draws(8, 0), reference);
  for (const auto& other : {draws(9, 0), draws(8, 1), draws(8, 2), draws(7, 1)}) {
    int same = 0;
    for (std::size_t n = 0; n < reference.size(); ++n) same += other[n] == reference[n];
    EXPECT_LT(same, 20);
  }
}

// What a device's SAMPLE must be given for answer i: the counter of its token n.
TEST(Sampler, ChoicesHaveTheirOwnCounters) {
  const std::vector<double> logits(1000, 1.0);  // the id is the thousandth that u falls into
  for (const std::uint32_t choice : {0u, 1u, 7u, 0xFFFFFFFFu}) {
    Sampler sampler({.temperature = 1, .seed = 3, .choice = choice});
    for (std::uint64_t n = 0; n < 4; ++n, sampler.accept(0)) {
      const double u = uniform(3, (std::uint64_t{choice} << 32) + n);
      EXPECT_EQ(sampler.sample(logits), static_cast<TokenId>(u * 1000));
    }
  }
}

TEST(Sampler, ExtremeTemperatures) {
  const std::vector<double> logits{1, 4, 2, 4 - 1e-6};
  for (const double temperature : {5e-324, 1e-300, 1e-12}) EXPECT_EQ(draw({.temperature = temperature}, logits, 9), 1);
  const auto tiny = Sampler({.temperature = 1e-6}).distribution(logits);
  ASSERT_EQ(tiny.size(), 2u);
  EXPECT_NEAR(tiny[0].probability, 1 / (1 + std::exp(-1)), 1e-9);
  for (const double temperature : {1e9, 1e300}) {
    const auto flat = Sampler({.temperature = temperature, .top_p = 0.7, .min_p = 0.5}).distribution(logits);
    ASSERT_EQ(flat.size(), 3u);
    EXPECT_NEAR(flat[2].probability, 1.0 / 3, 1e-8);
  }
}

TEST(Sampler, OfEqualLogitsAtTheBorderTheLowestIdsStay) {
  const std::vector<double> logits{5, 7, 5, 5, 1};
  const auto ids = [&](const SamplingParams& p) {
    std::vector<TokenId> out;
    for (const TokenProbability& each : Sampler(p).distribution(logits)) out.push_back(each.id);
    return out;
  };
  EXPECT_EQ(ids({.temperature = 1, .top_k = 2}), (std::vector<TokenId>{1, 0}));
  EXPECT_EQ(ids({.temperature = 1, .top_k = 3}), (std::vector<TokenId>{1, 0, 2}));
  EXPECT_EQ(ids({.temperature = 1, .top_p = 0.8}), (std::vector<TokenId>{1, 0}));
  EXPECT_EQ(ids({.temperature = 1, .min_p = std::exp(-2.0)}), (std::vector<TokenId>{1, 0, 2, 3}));
  EXPECT_EQ(ids({.temperature = 1, .top_k = 99, .top_p = 1, .min_p = 0}), (std::vector<TokenId>{1, 0, 2, 3, 4}));
}

// The first of the typical ones may be far from the best.
TEST(Sampler, TypicalMayLeaveTheBestOut) {
  // p = 0.4 and 60 times 0.01: the entropy 3.13 is closer to -ln 0.01 = 4.6 than to -ln 0.4 = 0.92.
  std::vector<double> logits(61, std::log(0.01));
  logits[10] = std::log(0.4);
  const auto left = Sampler({.temperature = 1, .typical_p = 0.5}).distribution(logits);
  ASSERT_EQ(left.size(), 60u);
  for (const TokenProbability& each : left) {
    EXPECT_NE(each.id, 10);
    EXPECT_NEAR(each.probability, 1.0 / 60, 1e-12);
  }
  std::vector<int> counts(61);
  Sampler sampler({.temperature = 1, .typical_p = 0.5});
  for (int n = 0; n < 6000; ++n, sampler.accept(0)) ++counts[static_cast<std::size_t>(sampler.sample(logits))];
  EXPECT_EQ(counts[10], 0);
  EXPECT_GT(*std::min_element(counts.begin() + 11, counts.end()), 50);
}

TEST(Sampler, EveryLogitBiasHasItsWeight) {
  const std::vector<double> logits{3, 2, 1, 0};
  EXPECT_EQ(draw({.logit_bias = {{3, 100}}}, logits, 0), 3);
  EXPECT_EQ(draw({.logit_bias = {{0, -100}}}, logits, 0), 1);
  EXPECT_EQ(draw({.logit_bias = {{2, 2.5}, {0, -0.25}}}, logits, 0), 2);
  const auto left = Sampler({.temperature = 1, .logit_bias = {{3, 3}, {1, 1}, {2, 2}}}).distribution(logits);
  for (const TokenProbability& each : left) EXPECT_NEAR(each.probability, 0.25, 1e-15);
}

TEST(Sampler, SaysWhenNothingIsLeft) {
  const std::vector<double> logits{3, 2, -kInfinity, -kInfinity};
  for (const double temperature : {0.0, 1.0}) {
    const Sampler sampler({.temperature = temperature, .allowed_ids = {2, 3}});
    try {
      sampler.sample(logits);
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kUsage);
      EXPECT_NE(std::string(e.what()).find("no token may come"), std::string::npos) << e.what();
    }
  }
  EXPECT_THROW(draw({.repetition_penalty = 1e-320}, logits, 1), Error);  // 3 / 1e-320 is no number
}

}  // namespace
}  // namespace backplane::sample
