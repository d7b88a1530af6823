#include "tools/lab/sizes.h"

#include <algorithm>
#include <cmath>

namespace backplane::lab {
namespace {

// Seconds for each experiment.
constexpr double kCacheSeconds = 12, kPhaseSeconds = 10, kPaddingSeconds = 12, kBatchingSeconds = 14,
                 kLogitsSeconds = 10, kContextSeconds = 20;
constexpr double kStepSeconds = 8;  // of kContextSeconds, for the steps that are measured
constexpr std::uint32_t kCachePrompt = 16, kMostCacheTokens = 256;
constexpr std::uint32_t kRows = 8;  // of the padded batch
constexpr double kSlowStep = 0.02;  // seconds

// Whether fewer requests and repetitions have to do.
bool is_slow(const Speed& speed) { return speed.step_s > kSlowStep; }

std::uint32_t whole(double value, double least, double most) {
  return static_cast<std::uint32_t>(std::clamp(std::isfinite(value) ? value : least, least, std::max(least, most)));
}

// Reading the prompt and adding G tokens without a cache computes G (prompt + G / 2) tokens.
CacheSizes cache_sizes(const Speed& speed, const Room& room, bool quick) {
  if (room.context < kLeastContext) return {};
  const double prompt = quick ? 8 : kCachePrompt, budget = kCacheSeconds / speed.token_s;
  const double tokens = std::sqrt(prompt * prompt + 2 * budget) - prompt;
  const double most = std::min<double>(room.context - prompt, quick ? 8 : kMostCacheTokens);
  return {.prompt = static_cast<std::uint32_t>(prompt), .tokens = whole(tokens, 8, most)};
}

// 1, 2, 4, ... up to `most`.
std::vector<std::uint32_t> doubling(std::uint32_t most) {
  std::vector<std::uint32_t> sizes;
  for (std::uint32_t n = 1; n <= most; n *= 2) sizes.push_back(n);
  return sizes;
}

PhaseSizes phase_sizes(const Speed& speed, const Room& room, bool quick) {
  if (room.context < kLeastContext) return {};
  PhaseSizes sizes{.prompts = {}, .decodes = quick ? 4u : 16u, .repeats = quick ? 1u : 3u};
  const double budget = (kPhaseSeconds - sizes.decodes * speed.step_s) / speed.token_s;
  const double most = std::min<double>(
      {quick ? 16.0 : 512.0, static_cast<double>(room.context - sizes.decodes), static_cast<double>(room.step_tokens)});
  sizes.prompts = doubling(whole(budget / (2.0 * sizes.repeats), 8, most));  // all sizes together: twice the largest
  return sizes;
}

PaddingSizes padding_sizes(const Speed& speed, const Room& room, bool quick) {
  PaddingSizes sizes{.rows = std::min(kRows, room.sequences / 2),
                     .reply = quick ? 3u : 6u,
                     .repeats = quick            ? 1u
                                : is_slow(speed) ? 2u
                                                 : 3u};
  if (sizes.rows < 2 || room.context < kLeastContext || room.step_tokens < 8 * sizes.rows) return {};
  // For each repeat a padded and a ragged batch; then the replies: padded, ragged and alone.
  const double tokens = kPaddingSeconds / speed.token_s / sizes.rows / (1.5 * sizes.repeats + 2);
  const double most = std::min<double>({quick ? 16.0 : 128.0, static_cast<double>(room.step_tokens / sizes.rows),
                                        static_cast<double>(room.context - sizes.reply)});
  sizes.longest = whole(tokens, 16, most);
  return sizes;
}

BatchingSizes batching_sizes(const Speed& speed, const Room& room, bool quick) {
  if (room.context < kLeastContext || room.sequences < 2) return {};
  const bool slow = is_slow(speed);
  return {.requests = quick  ? 6u
                      : slow ? 16u
                             : 24u,
          .seats = std::min({quick  ? 3u
                             : slow ? 4u
                                    : 8u,
                             room.sequences, room.step_tokens}),
          .seconds = quick ? 0.0 : kBatchingSeconds,
          .turns = quick ? 1u : 2u};
}

// Four lengths in equal steps, each with all logits and with the last only.
LogitsSizes logits_sizes(const Speed& speed, const Room& room, bool quick) {
  if (room.context < kLeastContext) return {};
  LogitsSizes sizes{.lengths = {}, .repeats = quick ? 1u : is_slow(speed) ? 2u : 3u};
  const double budget = kLogitsSeconds / speed.token_s / sizes.repeats;
  const double most = std::min<double>(
      {quick ? 16.0 : 128.0, static_cast<double>(room.context), static_cast<double>(room.step_tokens)});
  const std::uint32_t longest = whole(budget / 6, 8, most);
  for (std::uint32_t i = 1; i <= 4; ++i) sizes.lengths.push_back(longest * i / 4);
  return sizes;
}

ContextSizes context_sizes(const Speed& speed, const Room& room, bool quick) {
  if (room.context < kLeastContext) return {};
  const std::uint32_t points = quick ? 4 : 8;
  ContextSizes sizes{.lengths = {}, .steps = quick ? 3u : whole(kStepSeconds / (2 * points * speed.step_s), 3, 10)};
  const double budget = (kContextSeconds - 2 * points * sizes.steps * speed.step_s) / speed.token_s;
  const double most = std::min(quick ? 32.0 : 4096.0, static_cast<double>(room.context)) - sizes.steps;
  const std::uint32_t longest = whole(budget, 16, most);
  for (std::uint32_t i = 1; i <= points; ++i) sizes.lengths.push_back(longest * i / points);
  return sizes;
}

}  // namespace

Sizes choose_sizes(const Speed& speed, const Room& room, bool quick) {
  return {.cache = cache_sizes(speed, room, quick),
          .phases = phase_sizes(speed, room, quick),
          .padding = padding_sizes(speed, room, quick),
          .batching = batching_sizes(speed, room, quick),
          .logits = logits_sizes(speed, room, quick),
          .context = context_sizes(speed, room, quick)};
}

}  // namespace backplane::lab
