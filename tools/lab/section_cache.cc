#include <fmt/format.h>

#include <algorithm>

#include "tools/lab/sections.h"

namespace backplane::lab {
namespace {

constexpr std::size_t kDrawnSteps = 8;

// The first steps, a box for each token of the text.
BarChart first_steps(const Json& data, bool cached) {
  BarChart chart{.title = fmt::format("tokens computed in the first steps {} the cache", cached ? "with" : "without"),
                 .legend = {{"computed in this step", cached ? Color::kFirst : Color::kSecond}},
                 .cells = true};
  if (cached) chart.legend.emplace_back("keys and values read from the cache", Color::kMuted);
  const Json& steps = data["steps"];
  for (std::size_t i = 0; i < std::min(kDrawnSteps, steps.size()); ++i) {
    const double length = value_of(steps[i]["length"]);
    const double computed = value_of(steps[i][cached ? "computed_with" : "computed_without"]);
    Bar bar{.label = fmt::format("token {}", i + 1)};
    if (cached) bar.segments.push_back({length - computed, Color::kMuted});
    bar.segments.push_back({computed, cached ? Color::kFirst : Color::kSecond});
    bar.note = fmt::format("{:.0f}", computed);
    chart.bars.push_back(std::move(bar));
  }
  return chart;
}

LineChart times(const Json& data, bool summed) {
  LineChart chart{.title = summed ? "total time so far against tokens generated, without and with the cache"
                                  : "time for the next token against length of the text, without and with the cache",
                  .x_label = summed ? "tokens generated" : "tokens in the text so far",
                  .y_label = summed ? "time since the start" : "time for the next token",
                  .x_text = plain_text,
                  .y_text = seconds_text,
                  .x_from_first = true};
  chart.series = {{.name = "without the cache", .color = Color::kSecond}, {.name = "with the cache"}};
  double sums[2] = {0, 0};
  double count = 0;
  for (const Json& step : data["steps"]) {
    ++count;
    for (std::size_t i = 0; i < 2; ++i) {
      const double seconds = value_of(step[i == 0 ? "without_s" : "with_s"]);
      sums[i] += seconds;
      chart.series[i].points.emplace_back(summed ? count : value_of(step["length"]), summed ? sums[i] : seconds);
    }
  }
  return chart;
}

std::string tokens_finding(const Json& data) {
  const std::string count = count_text(value_of(data["generated_tokens"]), "token", "tokens");
  if (data["equal_tokens"].get<bool>()) {
    return fmt::format("Both ways gave the same {}: the cache saves work and changes nothing about the result.", count);
  }
  return fmt::format(
      "Of {}, the two ways agreed on the first {}. A device that adds numbers in another order for one token than for "
      "many rounds differently, and that can decide between two tokens of almost equal logits; `backplane check` tells "
      "rounding from a fault.",
      count, plain_text(value_of(data["equal_from_start"])));
}

std::string time_finding(const Json& data) {
  const double without = value_of(data["without"]["total_s"]), with = value_of(data["with"]["total_s"]);
  const double more_tokens = value_of(data["without"]["computed_tokens"]) / value_of(data["with"]["computed_tokens"]);
  std::string text = fmt::format("Generating all of them took {} without the cache and {} with it: {} without.",
                                 seconds_text(without), seconds_text(with), times_as(without, with, "long"));
  if (without / with < 0.95 * more_tokens) {
    text +=
        " That is less than the work alone would suggest: a step that computes many tokens at once needs less time "
        "for each of them (see prefill against decode).";
  }
  return text;
}

// What of the total's growth can be seen without a formula: a straight line's second half takes as long as its first.
std::string halves_finding(const Json& data) {
  const Json& steps = data["steps"];
  const std::size_t half = (steps.size() - 1) / 2;  // without the first one, which reads the prompt
  if (half == 0) return "There are too few tokens to compare the halves of the reply.";
  const auto ratio = [&](const char* key) {
    double sums[2] = {0, 0};
    for (std::size_t i = 0; i < 2 * half; ++i) sums[i / half] += value_of(steps[steps.size() - 2 * half + i][key]);
    return times_as(sums[1], sums[0], "long");
  };
  return fmt::format(
      "The second half of the reply took {} as the first half without the cache, and {} with it. Where both halves "
      "take "
      "the same time, the total is a straight line: it grows with the length. Where the second one takes longer, the "
      "line bends upwards: a step that computes the whole text again takes longer every time, and the total grows with "
      "the square of the length in the end.",
      ratio("without_s"), ratio("with_s"));
}

}  // namespace

void describe_cache(const Json& data, Section& section) {
  const Json &without = data["without"], &with = data["with"], &steps = data["steps"];
  const double prompt = value_of(data["prompt_tokens"]);
  const std::string tokens = count_text(value_of(data["generated_tokens"]), "token", "tokens");
  section.headline = fmt::format("Generating {} took {} without the cache as with it.", tokens,
                                 times_as(value_of(without["total_s"]), value_of(with["total_s"]), "long"));
  section.method = {fmt::format(
      "A prompt of {} was continued by {} in two ways, always with the most likely token. Without the cache "
      "the model was run, for each new token, over the whole text so far, and what it had computed was "
      "thrown away. With the cache the prompt was run once; from then on each step ran the newest token "
      "only and read the keys and values of all others from the cache.",
      count_text(prompt, "token", "tokens"), tokens)};
  if (!data["text"].get<std::string>().empty()) {
    section.method.push_back(fmt::format("The prompt was “{}”; the model went on with “{}”.",
                                         data["prompt"].get<std::string>(), data["text"].get<std::string>()));
  }
  section.plots = {
      {"Without the cache: the tokens that the model computes for the first tokens of the reply. Everything, again and "
       "again.",
       first_steps(data, false)},
      {"With the cache: after the prompt, one token in each step.", first_steps(data, true)},
      {"The time for each token, as the text grows. With the cache the first one includes reading the prompt.",
       times(data, false)},
      {"The same times added up.", times(data, true)}};
  section.table = {
      {"", "without the cache", "with the cache"},
      {"tokens computed", plain_text(value_of(without["computed_tokens"])),
       plain_text(value_of(with["computed_tokens"]))},
      {"arithmetic", flops_text(value_of(without["flops"])), flops_text(value_of(with["flops"]))},
      {"time for the first token", seconds_text(value_of(steps.front()["without_s"])),
       seconds_text(value_of(steps.front()["with_s"]))},
      {"time for the last token", seconds_text(value_of(steps.back()["without_s"])),
       seconds_text(value_of(steps.back()["with_s"]))},
      {"time for all", seconds_text(value_of(without["total_s"])), seconds_text(value_of(with["total_s"]))}};
  section.findings = {
      tokens_finding(data),
      fmt::format("Without the cache the model computed {}, with it {}: {} without.",
                  count_text(value_of(without["computed_tokens"]), "token", "tokens"),
                  plain_text(value_of(with["computed_tokens"])),
                  times_as(value_of(without["computed_tokens"]), value_of(with["computed_tokens"]), "many")),
      time_finding(data),
      fmt::format("Growth without the cache: {}.", fit_text(without["fit"], "each token in the text")),
      fmt::format("Growth with the cache, after the prompt: {}.", fit_text(with["fit"], "each token in the text")),
      halves_finding(data)};
  section.caveats = {
      "Each way ran once. Single points that stick out come from whatever else the machine was doing.",
      "The lengths were chosen so that the slower way ends in reasonable time; the longer the text, the larger the "
      "difference.",
      "The cache is paid for in memory: see what a token takes under a decode step against the length of the context."};
}

}  // namespace backplane::lab
