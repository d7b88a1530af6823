#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "core/base/error.h"
#include "core/sample/sampling_params.h"

namespace backplane::sample {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

// What a usage error says; "" when there is none.
std::string refusal(const SamplingParams& params, std::uint32_t vocab_size = 100) {
  try {
    validate(params, vocab_size);
  } catch (const Error& e) {
    return e.code() == ErrorCode::kUsage ? e.what() : "wrong code";
  }
  return "";
}

void expect_refused(const SamplingParams& params, const std::string& beginning) {
  EXPECT_EQ(refusal(params).substr(0, beginning.size()), beginning);
}

TEST(SamplingParams, EndsOfTheRangesAreGood) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({.temperature = 2, .top_k = 5, .top_p = 0, .min_p = 1, .typical_p = 1e-9}), "");
  EXPECT_EQ(refusal({.repetition_penalty = 1e-3, .presence_penalty = 2, .frequency_penalty = -2}), "");
  EXPECT_EQ(refusal({.logit_bias = {{0, -100}, {99, 100}}, .allowed_ids = {0, 99}, .bad_words = {{99}, {0, 5}}}), "");
}

// repetition_penalty 0 once turned all logits into 0 or infinity:
// https://github.com/abetlen/llama-cpp-python/issues/1484
TEST(SamplingParams, AreRefusedByNameWithTheirRange) {
  for (const double bad : {-0.1, kNan, kInfinity}) {
    expect_refused({.temperature = bad}, "temperature can't be " + std::to_string(bad).substr(0, 3));
  }
  expect_refused({.top_k = -1}, "top_k can't be -1");
  for (const double bad : {-0.1, 1.1, kNan}) {
    expect_refused({.top_p = bad}, "top_p can't be");
    expect_refused({.min_p = bad}, "min_p can't be");
    expect_refused({.typical_p = bad}, "typical_p can't be");
  }
  expect_refused({.typical_p = 0}, "typical_p can't be 0");
  for (const double bad : {0.0, -1.0, kNan, kInfinity}) {
    expect_refused({.repetition_penalty = bad}, "repetition_penalty can't be");
  }
  for (const double bad : {-2.1, 2.1, kNan, kInfinity}) {
    expect_refused({.presence_penalty = bad}, "presence_penalty can't be");
    expect_refused({.frequency_penalty = bad}, "frequency_penalty can't be");
  }
  for (const double bad : {-100.5, 101.0, kNan, -kInfinity}) {
    expect_refused({.logit_bias = {{7, bad}}}, "logit_bias of token 7 can't be");
  }
  expect_refused({.bad_words = {{1}, {}}}, "bad_words can't have a word without tokens");
  EXPECT_NE(refusal({.min_p = 2}).find("between 0 and 1"), std::string::npos);
}

// https://github.com/vllm-project/vllm/pull/16529: ids outside of the vocabulary ended the process.
TEST(SamplingParams, IdsOutsideOfTheVocabularyAreRefused) {
  for (const TokenId bad : {-1, 100, std::numeric_limits<TokenId>::max()}) {
    const std::string id = std::to_string(bad);
    expect_refused({.logit_bias = {{bad, 1}}}, "logit_bias has no token " + id);
    expect_refused({.allowed_ids = {5, bad}}, "allowed_ids has no token " + id);
    expect_refused({.bad_words = {{5, bad}}}, "bad_words has no token " + id);
  }
}

}  // namespace
}  // namespace backplane::sample
