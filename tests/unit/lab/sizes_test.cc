#include "tools/lab/sizes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace backplane::lab {
namespace {

// Whatever is chosen can be run in the room that there is.
void expect_fits(const Sizes& sizes, const Room& room) {
  EXPECT_LE(sizes.cache.prompt + sizes.cache.tokens, room.context);
  EXPECT_LE(sizes.phases.prompts.back(), room.step_tokens);
  EXPECT_LE(sizes.phases.prompts.back() + sizes.phases.decodes, room.context);
  if (sizes.padding.rows > 0) {
    EXPECT_LE(sizes.padding.rows * sizes.padding.longest, room.step_tokens);
    EXPECT_LE(2 * sizes.padding.rows, room.sequences);  // with a sequence of pads for each row
    EXPECT_LE(sizes.padding.longest + sizes.padding.reply, room.context);
  }
  EXPECT_LE(sizes.batching.seats, std::min(room.sequences, room.step_tokens));
  EXPECT_LE(sizes.logits.lengths.back(), std::min(room.context, room.step_tokens));
  EXPECT_LE(sizes.context.lengths.back() + sizes.context.steps, room.context);
  for (const auto& lengths : {sizes.phases.prompts, sizes.logits.lengths, sizes.context.lengths}) {
    EXPECT_TRUE(std::is_sorted(lengths.begin(), lengths.end()));
    EXPECT_EQ(std::adjacent_find(lengths.begin(), lengths.end()), lengths.end());  // all different
    EXPECT_GE(lengths.front(), 1u);
  }
}

TEST(Sizes, FitEveryRoom) {
  for (const double step : {1e-5, 1e-3, 0.1, 3.0}) {
    for (const double token : {step, step / 4, step / 100}) {
      for (const Room room :
           {Room{32, 32, 16}, Room{33, 64, 2}, Room{200, 512, 16}, Room{2048, 512, 16}, Room{131072, 4096, 16}}) {
        for (const bool quick : {false, true}) {
          SCOPED_TRACE(testing::Message() << step << " " << token << " " << room.context << " " << quick);
          expect_fits(choose_sizes({.token_s = token, .step_s = step}, room, quick), room);
        }
      }
    }
  }
}

TEST(Sizes, AreNoneWithoutRoom) {
  const Sizes sizes =
      choose_sizes({.token_s = 0.01, .step_s = 0.02}, {.context = 31, .step_tokens = 31, .sequences = 16}, false);
  EXPECT_EQ(sizes.cache.tokens, 0u);
  EXPECT_TRUE(sizes.phases.prompts.empty());
  EXPECT_EQ(sizes.padding.rows, 0u);
  EXPECT_EQ(sizes.batching.requests, 0u);
  EXPECT_TRUE(sizes.logits.lengths.empty());
  EXPECT_TRUE(sizes.context.lengths.empty());
  EXPECT_EQ(choose_sizes({0.01, 0.02}, {512, 512, 1}, false).padding.rows, 0u);  // one sequence is no batch
  EXPECT_EQ(choose_sizes({0.01, 0.02}, {512, 512, 1}, false).batching.requests, 0u);
}

// The seconds of all experiments on a device of this speed, batching apart (its sizes come with the trace).
double seconds(const Sizes& sizes, const Speed& speed) {
  const double g = sizes.cache.tokens;
  double total = g * (sizes.cache.prompt + g / 2) * speed.token_s + g * speed.step_s;
  for (const auto n : sizes.phases.prompts) total += sizes.phases.repeats * n * speed.token_s;
  total += sizes.phases.decodes * speed.step_s;
  total += 2.0 * sizes.padding.repeats * sizes.padding.rows * sizes.padding.longest * speed.token_s;
  for (const auto n : sizes.logits.lengths) total += 2.5 * sizes.logits.repeats * n * speed.token_s;
  total += sizes.context.lengths.back() * speed.token_s;
  return total + 2.0 * static_cast<double>(sizes.context.lengths.size()) * sizes.context.steps * speed.step_s;
}

TEST(Sizes, TakeAMinuteOrTwo) {
  for (const double step : {1e-4, 1e-3, 1e-2, 0.1}) {
    const Speed speed{.token_s = step / 4, .step_s = step};
    EXPECT_LT(seconds(choose_sizes(speed, kWantedRoom, false), speed), 100) << step;
  }
  const Speed slow{.token_s = 0.03, .step_s = 0.1};
  EXPECT_GT(seconds(choose_sizes(slow, kWantedRoom, false), slow), 30);  // the time is used
  EXPECT_LT(seconds(choose_sizes(slow, kWantedRoom, true), slow), 25);
}

}  // namespace
}  // namespace backplane::lab
