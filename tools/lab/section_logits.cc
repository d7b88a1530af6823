#include <fmt/format.h>

#include "tools/lab/sections.h"

namespace backplane::lab {
namespace {

LineChart time_chart(const Json& data) {
  LineChart chart{.title = "time to compute a prompt against its length, with all logits and with the last ones only",
                  .x_label = "tokens of the prompt",
                  .y_label = "time for the prompt",
                  .x_text = plain_text,
                  .y_text = seconds_text};
  chart.series = {{.name = "logits for all positions", .color = Color::kSecond}, {.name = "for the last one only"}};
  for (const Json& row : data["lengths"]) {
    chart.series[0].points.emplace_back(value_of(row["tokens"]), value_of(row["all_s"]));
    chart.series[1].points.emplace_back(value_of(row["tokens"]), value_of(row["last_s"]));
  }
  return chart;
}

BarChart memory_chart(const Json& longest) {
  const double all = value_of(longest["all_bytes"]), last = value_of(longest["last_bytes"]);
  return {.title = "memory for the logits of the longest prompt",
          .bars = {{.label = "all positions", .segments = {{all, Color::kSecond}}, .note = bytes_text(all)},
                   {.label = "the last only", .segments = {{last, Color::kFirst}}, .note = bytes_text(last)}}};
}

}  // namespace

void describe_logits(const Json& data, Section& section) {
  const Json& longest = data["lengths"].back();
  const double all_flops = value_of(longest["all_flops"]), last_flops = value_of(longest["last_flops"]);
  const std::string tokens = count_text(value_of(longest["tokens"]), "token", "tokens");
  section.headline = fmt::format("All logits of {} took {} as the last ones only.", tokens,
                                 times_as(value_of(longest["all_s"]), value_of(longest["last_s"]), "long"));
  section.method = {fmt::format(
      "Prompts of {} lengths were computed with logits for every position and with logits for the last one only, by "
      "turns, "
      "{}; the fastest counts. The vocabulary has {}, so a row of logits takes {} on the device.",
      data["lengths"].size(), count_text(value_of(data["repeats"]), "time each", "times each"),
      count_text(value_of(data["vocabulary"]), "entry", "entries"), bytes_text(value_of(data["row_bytes"])))};
  section.plots = {{"Time to compute a prompt.", time_chart(data)},
                   {fmt::format("Memory for the logits of {}.", tokens), memory_chart(longest)}};
  section.table = {
      {"", "all positions", "the last only"},
      {"time for the longest prompt", seconds_text(value_of(longest["all_s"])),
       seconds_text(value_of(longest["last_s"]))},
      {"rows of logits", plain_text(value_of(longest["all_rows"])), plain_text(value_of(longest["last_rows"]))},
      {"memory for logits", bytes_text(value_of(longest["all_bytes"])), bytes_text(value_of(longest["last_bytes"]))},
      {"arithmetic", flops_text(all_flops), flops_text(last_flops)}};
  section.findings = {
      fmt::format("For {} all logits took {}, the last ones only {}: {} with all.", tokens,
                  seconds_text(value_of(longest["all_s"])), seconds_text(value_of(longest["last_s"])),
                  times_as(value_of(longest["all_s"]), value_of(longest["last_s"]), "long")),
      fmt::format(
          "All logits of this prompt fill {}, the last row {}. For the {} of a full context of this run it would "
          "be {}.",
          bytes_text(value_of(longest["all_bytes"])), bytes_text(value_of(longest["last_bytes"])),
          count_text(value_of(data["full_context_tokens"]), "token", "tokens"),
          bytes_text(value_of(data["full_context_bytes"]))),
      fmt::format(
          "By the count of operations, {} of the arithmetic with all logits goes into rows that generation never "
          "looks at.",
          percent_text((all_flops - last_flops) / all_flops)),
      data["same_last_row"].get<bool>() ? "The last position's logits are the same to the last bit in both ways."
                                        : "The last position's logits differ in their last bits: the device computes "
                                          "one row in another order than many."};
  section.caveats = {
      "All positions' logits are what it takes to score a given text (its perplexity, log-probabilities of a prompt); "
      "for "
      "generation they are waste.",
      "The memory is counted from sizes. Backplane computes a few rows at a time on the device and keeps what was "
      "asked for "
      "on the host."};
  if (value_of(longest["all_steps"]) > value_of(longest["last_steps"])) {
    section.caveats.push_back(fmt::format(
        "To bound their memory, all logits of the longest prompt were computed in {}, not {}; that is part of their "
        "time.",
        count_text(value_of(longest["all_steps"]), "step", "steps"), plain_text(value_of(longest["last_steps"]))));
  }
}

}  // namespace backplane::lab
