// Generation without and with the KV cache.
#include <algorithm>

#include "tools/lab/experiments.h"
#include "tools/lab/statistics.h"

namespace backplane::lab {
namespace {

// Each token of a reply, and the seconds that the model took for it.
struct Reply {
  std::vector<TokenId> ids;
  std::vector<double> seconds;
};

// Every token comes from the whole text, computed anew.
Reply without_cache(const Setup& setup, const CacheSizes& sizes) {
  engine::Scorer scorer(setup.model);
  std::vector<TokenId> ids = setup.prompts.ids(sizes.prompt);
  Reply reply;
  for (std::uint32_t i = 0; i < sizes.tokens; ++i) {
    setup.progress(std::uint64_t{i} * (sizes.prompt + i / 2),
                   std::uint64_t{sizes.tokens} * (sizes.prompt + sizes.tokens / 2));
    const Scored next = score_whole(scorer, ids);
    reply.ids.push_back(next.token);
    reply.seconds.push_back(next.seconds);
    ids.push_back(next.token);
  }
  return reply;
}

Reply with_cache(const Setup& setup, const CacheSizes& sizes) {
  engine::Engine engine(setup.model, measuring(1, setup.room));
  Reply reply;
  std::uint64_t before = 0;
  const auto on_event = [&](const engine::Event&) {
    setup.progress(1, 1);
    const auto& steps = engine.steps();
    const auto count = static_cast<std::ptrdiff_t>(steps.steps_run() - before);
    before = steps.steps_run();
    const std::vector<engine::StepRecord> latest(steps.records().end() - count, steps.records().end());
    reply.seconds.push_back(seconds_of(latest));
  };
  reply.ids = generate_greedy(engine, setup.prompts.ids(sizes.prompt), sizes.tokens, on_event).ids;
  return reply;
}

double sum(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

}  // namespace

Json fit_json(const std::vector<std::pair<double, double>>& points) {
  const std::optional<Fit> fit = fit_line(points);
  if (!fit) return {};
  return {{"intercept", figure(fit->intercept)},
          {"slope", figure(fit->slope)},
          {"r2", fit->r2 ? figure(*fit->r2) : Json()}};
}

Json run_cache(const Setup& setup, const CacheSizes& sizes) {
  const Reply without = without_cache(setup, sizes), with = with_cache(setup, sizes);
  Json steps = Json::array();
  std::vector<Point> points[2];
  double flops[2] = {0, 0};
  for (std::uint32_t i = 0; i < sizes.tokens; ++i) {
    const std::uint32_t length = sizes.prompt + i;
    const Share whole{.past = 0, .tokens = length, .rows = 1};
    const Share next = i == 0 ? whole : Share{.past = length - 1, .tokens = 1, .rows = 1};
    flops[0] += setup.work.tokens_flops(whole);
    flops[1] += setup.work.tokens_flops(next);
    steps.push_back({{"length", length},
                     {"computed_without", whole.tokens},
                     {"computed_with", next.tokens},
                     {"without_s", figure(without.seconds[i])},
                     {"with_s", figure(with.seconds[i])}});
    points[0].emplace_back(length, without.seconds[i]);
    if (i > 0) points[1].emplace_back(length, with.seconds[i]);  // the first one reads the prompt
  }
  const std::uint64_t tokens = sizes.tokens;
  const auto same = std::mismatch(without.ids.begin(), without.ids.end(), with.ids.begin(), with.ids.end());
  return {{"prompt_tokens", sizes.prompt},
          {"generated_tokens", tokens},
          {"prompt", setup.prompts.text(setup.prompts.ids(sizes.prompt))},
          {"text", setup.prompts.text(with.ids)},
          {"ids", with.ids},
          {"equal_tokens", without.ids == with.ids},
          {"equal_from_start", same.first - without.ids.begin()},
          {"without",
           {{"total_s", figure(sum(without.seconds))},
            {"computed_tokens", sizes.prompt * tokens + tokens * (tokens - 1) / 2},
            {"flops", figure(flops[0])},
            {"fit", fit_json(points[0])}}},
          {"with",
           {{"total_s", figure(sum(with.seconds))},
            {"computed_tokens", sizes.prompt + tokens - 1},
            {"flops", figure(flops[1])},
            {"fit", fit_json(points[1])}}},
          {"steps", std::move(steps)}};
}

}  // namespace backplane::lab
