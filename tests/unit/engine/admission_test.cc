#include "core/engine/admission.h"

#include <gtest/gtest.h>

#include <string>

namespace backplane::engine {
namespace {

constexpr Limits kLimits{.vocab_size = 10, .context = 20, .kv_longest = 16, .has_tokenizer = false};

Request request(std::size_t prompt, std::optional<std::uint32_t> max_tokens = {}) {
  return {.prompt = std::vector<TokenId>(prompt, 1), .max_tokens = max_tokens};
}

std::string refusal(const Request& r, ErrorCode code, const Limits& limits = kLimits) {
  try {
    allow(r, limits);
  } catch (const Error& e) {
    return e.code() == code ? e.what() : "wrong code: " + std::string(e.what());
  }
  return "accepted";
}

bool names(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Admission, GivesAsManyTokensAsFit) {
  const Allowance unlimited = allow(request(5), kLimits);
  EXPECT_EQ(unlimited.max_tokens, 12u);  // the 12th is chosen from the cache's 16th and is not stored
  EXPECT_EQ(unlimited.kv_length, 16u);
  const Allowance asked = allow(request(5, 7), kLimits);
  EXPECT_EQ(asked.max_tokens, 7u);
  EXPECT_EQ(asked.kv_length, 11u);
  EXPECT_EQ(asked.planned_length, 12u);
}

TEST(Admission, EndsWithTheContext) {
  const Limits roomy{.vocab_size = 10, .context = 20, .kv_longest = 20, .has_tokenizer = false};
  const Allowance full = allow(request(20, 500), roomy);
  EXPECT_EQ(full.max_tokens, 1u);
  EXPECT_EQ(full.planned_length, 20u);
  EXPECT_EQ(allow(request(15, 500), roomy).max_tokens, 6u);
}

TEST(Admission, RefusesWhatCanNeverFitAndNamesTheMost) {
  EXPECT_TRUE(
      names(refusal(request(21), ErrorCode::kCapacity), "the prompt of 21 tokens is longer than the context of 20"));
  EXPECT_TRUE(names(refusal(request(17), ErrorCode::kCapacity), "does not fit the KV cache, which holds 16"));
  EXPECT_TRUE(names(refusal(request(10, 8), ErrorCode::kCapacity), "ask for at most 7 tokens"));
  EXPECT_EQ(refusal(request(10, 7), ErrorCode::kCapacity), "accepted");
}

TEST(Admission, RefusesWrongRequests) {
  EXPECT_TRUE(names(refusal({}, ErrorCode::kUsage), "the prompt is empty"));
  for (const TokenId bad : {-1, 10}) {
    Request r = request(3);
    r.prompt[1] = bad;
    EXPECT_TRUE(names(refusal(r, ErrorCode::kUsage), "the prompt has no token " + std::to_string(bad)));
    r = request(3);
    r.stop_ids = {bad};
    EXPECT_TRUE(names(refusal(r, ErrorCode::kUsage), "stop ids"));
  }
  EXPECT_TRUE(names(refusal(request(3, 0), ErrorCode::kUsage), "max_tokens"));
  Request r = request(3);
  r.stop = {"x"};
  EXPECT_TRUE(names(refusal(r, ErrorCode::kUsage), "tokenizer"));
  r = request(3);
  r.sampling.top_p = 2;
  EXPECT_TRUE(names(refusal(r, ErrorCode::kUsage), "top_p"));
}

}  // namespace
}  // namespace backplane::engine
