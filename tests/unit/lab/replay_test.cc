#include "tools/lab/replay.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/lab/bench.h"

namespace backplane::lab {
namespace {

class Replay : public ::testing::Test {
 protected:
  // Four that are there from the start, and one that comes when they are long gone.
  std::vector<TraceRequest> trace_ = {{0, 5, 9}, {0, 8, 2}, {0, 3, 4}, {0, 6, 1}, {1e6, 2, 3}};

  Replayed play(Policy policy) {
    tokens_ = 0;
    return replay(bench_.setup, trace_, policy, 2, [&] { ++tokens_; });
  }
  void expect_served(const Replayed& replayed) {
    ASSERT_EQ(replayed.requests.size(), trace_.size());
    for (std::size_t i = 0; i < trace_.size(); ++i) {
      const Served& served = replayed.requests[i];
      const auto prompt = bench_.prompts.ids(trace_[i].prompt, static_cast<std::uint32_t>(i));
      EXPECT_EQ(served.ids, bench_.model.greedy(prompt, trace_[i].generated));
      EXPECT_LE(served.arrival_s, served.first_token_s);
      EXPECT_LE(served.first_token_s, served.end_s);
      EXPECT_LE(served.end_s, replayed.end_s);
    }
    EXPECT_EQ(tokens_, 19u);
    EXPECT_GE(replayed.requests[4].first_token_s, 1e6);  // the clock was put forward, nobody waited
    EXPECT_LT(replayed.busy_s, 1000);
    EXPECT_EQ(replayed.occupancy.back().sequences, 0u);
    EXPECT_TRUE(std::is_sorted(replayed.occupancy.begin(), replayed.occupancy.end(),
                               [](const Occupancy& a, const Occupancy& b) { return a.at_s < b.at_s; }));
  }

  Bench bench_;
  std::size_t tokens_ = 0;
};

std::vector<std::uint32_t> sequences(const Bench& bench) {
  std::vector<std::uint32_t> out;
  for (const sched::Step& step : bench.model.steps()) out.push_back(step.sequences());
  return out;
}

TEST_F(Replay, ServesOneAfterAnother) {
  const Replayed replayed = play(Policy::kOne);
  expect_served(replayed);
  EXPECT_EQ(sequences(bench_), std::vector<std::uint32_t>(19, 1));
  for (std::size_t i = 0; i + 1 < 4; ++i) {
    EXPECT_LE(replayed.requests[i].end_s, replayed.requests[i + 1].first_token_s);
  }
}

// Pairs: 9 steps, two of which have both; then 4, one of which has both; then 3.
TEST_F(Replay, ServesBatchAfterBatch) {
  const Replayed replayed = play(Policy::kStatic);
  expect_served(replayed);
  EXPECT_EQ(sequences(bench_), (std::vector<std::uint32_t>{2, 2, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1}));
  EXPECT_LE(replayed.requests[0].end_s, replayed.requests[2].first_token_s);
  EXPECT_EQ(replayed.steps, 16u);
}

// The second seat is taken again as soon as it is free: 2 + 4 + 1 tokens beside the 9 of the first.
TEST_F(Replay, FillsFreeSeats) {
  const Replayed replayed = play(Policy::kContinuous);
  expect_served(replayed);
  EXPECT_EQ(sequences(bench_), (std::vector<std::uint32_t>{2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1}));
  EXPECT_LT(replayed.requests[2].first_token_s, replayed.requests[0].end_s);
  EXPECT_NEAR(replayed.seat_seconds / replayed.busy_s, 1.5, 0.5);
}

TEST_F(Replay, GivesTheErrorOfARequest) {
  bench_.model.before_step = [](const sched::Step&) { throw Error(ErrorCode::kDevice, "it broke"); };
  EXPECT_THROW(play(Policy::kContinuous), Error);
}

}  // namespace
}  // namespace backplane::lab
