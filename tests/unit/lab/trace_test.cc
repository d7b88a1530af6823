#include "tools/lab/trace.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"
#include "tools/lab/statistics.h"

namespace backplane::lab {
namespace {

constexpr const char* kHead = "TIMESTAMP,ContextTokens,GeneratedTokens\n";

TEST(Trace, IsRead) {
  const Trace trace = parse_trace(std::string("\xef\xbb\xbf") + kHead +
                                      "2023-11-16 18:15:46.6805900,374,44\r\n"
                                      "2023-11-16 18:15:50.9951690,396,109\r\n\n"
                                      "2023-11-17 00:00:00,0,0",
                                  "azure.csv", 100);
  ASSERT_EQ(trace.requests.size(), 3u);
  EXPECT_EQ(trace.requests[0].arrival_s, 0);
  EXPECT_EQ(trace.requests[0].prompt, 374u);
  EXPECT_EQ(trace.requests[0].generated, 44u);
  EXPECT_NEAR(trace.requests[1].arrival_s, 4.314579, 1e-6);
  EXPECT_NEAR(trace.requests[2].arrival_s, 20653.31941, 1e-4);  // over midnight
  EXPECT_EQ(trace.requests[2].prompt, 1u);                      // there is no empty prompt
  EXPECT_NE(trace.source.find("azure.csv"), std::string::npos);
  EXPECT_EQ(
      parse_trace(std::string(kHead) + "2023-11-16 18:15:46,1,1\n2023-11-16 18:15:47,1,1\n", "t", 1).requests.size(),
      1u);
}

TEST(Trace, RefusesWhatIsNone) {
  const auto wrong = [](const std::string& text, const std::string& part) {
    EXPECT_ERROR(parse_trace(text, "t.csv", 10), ErrorCode::kBadFile, part);
  };
  wrong("", "without requests");
  wrong(kHead, "without requests");
  wrong("time,in,out\n", "line 1");
  const auto line = [&](const std::string& text, const std::string& part) { wrong(kHead + text, part); };
  line("2023-11-16 18:15:46,1", "three columns: t.csv, line 2");
  line("yesterday,1,1", "not a time");
  line("2023-11-16T18:15:46,1,1", "not a time");
  line("2023-13-16 18:15:46,1,1", "not a time");
  line("2023-11-16 25:15:46,1,1", "not a time");
  line("2023-11-16 18:15:nan,1,1", "not a time");
  line("2023-11-16 18:15:46,-1,1", "number of tokens");
  line("2023-11-16 18:15:46,1,99999999999", "number of tokens");
  line("2023-11-16 18:15:46,1,1,1", "number of tokens");
  line("2023-11-16 18:15:46,1,1\n2023-11-16 18:15:45,1,1", "line 3");
  EXPECT_ERROR(read_trace("/no/such/trace.csv", 10), ErrorCode::kBadFile, "/no/such/trace.csv");
}

// The medians of the trace that it takes after: 1020 and 129 tokens; lognormal says 760 and 151.
TEST(Trace, IsDrawnLikeRealOnes) {
  const Trace trace = random_trace(20000, 7);
  std::vector<double> prompts, replies;
  for (const TraceRequest& request : trace.requests) {
    prompts.push_back(std::log(request.prompt));
    replies.push_back(std::log(request.generated));
    EXPECT_GE(request.generated, 7u);
    EXPECT_LE(request.generated, 1000u);
    EXPECT_LE(request.prompt, 14050u);
  }
  EXPECT_NEAR(median(prompts), 6.633, 0.05);
  EXPECT_NEAR(median(replies), 5.019, 0.05);
  EXPECT_NEAR(quantile(prompts, 0.8413) - median(prompts), 0.985, 0.05);  // one standard deviation
  EXPECT_NEAR(trace.requests.back().arrival_s / 19999, 0.181, 0.01);
}

TEST(Trace, IsTheSameForASeed) {
  const Trace a = random_trace(50, 3), b = random_trace(50, 3), c = random_trace(50, 4);
  bool differs = false;
  for (std::size_t i = 0; i < 50; ++i) {
    EXPECT_EQ(a.requests[i].prompt, b.requests[i].prompt);
    EXPECT_EQ(a.requests[i].arrival_s, b.requests[i].arrival_s);
    differs = differs || a.requests[i].prompt != c.requests[i].prompt;
  }
  EXPECT_TRUE(differs);
  EXPECT_EQ(random_trace(10, 3).requests[9].generated, a.requests[9].generated);  // a longer one begins alike
}

TEST(Trace, IsScaledToTheContext) {
  const Trace trace = random_trace(256, 1);
  const Room room{.context = 256, .step_tokens = 256, .sequences = 8};
  const BatchingSizes sizes{.requests = 24, .seats = 8, .seconds = 20};
  const Speed fast{.token_s = 1e-6, .step_s = 1e-4};
  const ScaledTrace scaled = scale_trace(trace, sizes, fast, room);
  EXPECT_GE(scaled.requests.size(), 24u);
  EXPECT_EQ(scaled.prompt_scale, scaled.reply_scale);
  for (const TraceRequest& request : scaled.requests) EXPECT_LE(request.prompt + request.generated, room.context);
  EXPECT_NEAR(scaled.requests.back().arrival_s, scaled.serial_s / 3, 1e-9);
}

TEST(Trace, IsScaledToTheTime) {
  const Trace trace = random_trace(256, 1);
  const Room room{.context = 2048, .step_tokens = 512, .sequences = 8};
  const BatchingSizes sizes{.requests = 16, .seats = 4, .seconds = 18};
  const Speed slow{.token_s = 0.03, .step_s = 0.1};
  const ScaledTrace scaled = scale_trace(trace, sizes, slow, room);
  EXPECT_EQ(scaled.requests.size(), 16u);
  EXPECT_LT(scaled.prompt_scale, scaled.reply_scale);
  double serial = 0, replies = 0;
  for (const TraceRequest& request : scaled.requests) {
    serial += request.prompt * slow.token_s + request.generated * slow.step_s;
    replies += request.generated;
  }
  EXPECT_NEAR(serial, scaled.serial_s, 0.1 * scaled.serial_s);  // up to rounding
  EXPECT_LT(serial, 30);
  EXPECT_GE(replies / 16, 3.5);
  const ScaledTrace one = scale_trace({.source = {}, .requests = {{0, 900, 90}}}, sizes, slow, room);
  EXPECT_EQ(one.requests.size(), 1u);
  EXPECT_EQ(one.requests[0].arrival_s, 0);
}

}  // namespace
}  // namespace backplane::lab
