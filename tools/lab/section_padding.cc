#include <fmt/format.h>

#include "tools/lab/sections.h"

namespace backplane::lab {
namespace {

BarChart batch_chart(const Json& data) {
  BarChart chart{.title = "the padded batch, row by row",
                 .legend = {{"pads (mask 0)", Color::kMuted}, {"tokens of the prompt", Color::kFirst}},
                 .cells = true};
  double row = 0;
  for (const Json& prompt : data["prompts"]) {
    const double tokens = value_of(prompt["tokens"]);
    chart.bars.push_back({.label = fmt::format("row {}", ++row),
                          .segments = {{value_of(prompt["pads"]), Color::kMuted}, {tokens, Color::kFirst}},
                          .note = plain_text(tokens)});
  }
  return chart;
}

BarChart time_chart(const Json& data) {
  const double padded = value_of(data["padded"]["seconds"]), ragged = value_of(data["ragged"]["seconds"]);
  return {.title = "time to compute the prompts, padded and ragged",
          .bars = {{.label = "padded", .segments = {{padded, Color::kSecond}}, .note = seconds_text(padded)},
                   {.label = "ragged", .segments = {{ragged, Color::kFirst}}, .note = seconds_text(ragged)}}};
}

std::string tokens_finding(const Json& data) {
  const std::string reply = count_text(value_of(data["reply_tokens"]), "token", "tokens");
  if (data["equal_tokens"].get<bool>()) {
    return fmt::format(
        "Row by row, the first {} of every reply are the same in the padded batch, in the ragged one and "
        "for each prompt alone: the mask does what it should, and so does leaving the pads out.",
        reply);
  }
  return fmt::format(
      "{} of {} gave the same first {} in the padded batch, in the ragged one and alone. Where a device "
      "rounds differently in different batches, that can decide between tokens of almost equal logits; "
      "`backplane check` tells rounding from a fault.",
      plain_text(value_of(data["equal_rows"])), count_text(value_of(data["rows"]), "row", "rows"), reply);
}

}  // namespace

void describe_padding(const Json& data, Section& section) {
  const Json &padded = data["padded"], &ragged = data["ragged"];
  const double all = value_of(padded["computed_tokens"]), needed = value_of(ragged["computed_tokens"]);
  const std::string rows = count_text(value_of(data["rows"]), "prompt", "prompts");
  section.headline = fmt::format("{} of the padded batch was pads; it took {} as the ragged one.",
                                 percent_text(value_of(data["wasted"])),
                                 times_as(value_of(padded["seconds"]), value_of(ragged["seconds"]), "long"));
  section.method = {
      fmt::format(
          "{} of different lengths were computed in one step, in two ways. Padded: every prompt is filled up on "
          "the left with pads until all have {}; the mask has 0 for the pads, so that no token looks at them, and "
          "positions are counted from the first real token. Ragged: only the real tokens, one prompt directly "
          "behind the other, with a list of where each begins. Lengths are to each other as in the request trace "
          "used below.",
          rows, count_text(value_of(data["longest"]), "token", "tokens")),
      "Backplane knows ragged steps only. For the padded batch the pads were really computed, as sequences of their "
      "own "
      "that no other token looks at and whose results were thrown away, which is what a mask of 0 makes of them. One "
      "thing is missing: frameworks with rectangular attention also compute the scores between real tokens and pads, "
      "and "
      "those behind the diagonal, before the mask removes them.",
      fmt::format(
          "Both ways took turns, {}; the fastest counts. Then each prompt was continued in the padded batch, in the "
          "ragged one, and alone.",
          count_text(value_of(data["repeats"]), "time each", "times each"))};
  section.plots = {
      {"The padded batch. The number behind each row is how many of its tokens are real.", batch_chart(data)},
      {"Time to compute all prompts.", time_chart(data)}};
  section.table = {{"", "padded", "ragged"},
                   {"tokens computed", plain_text(all), plain_text(needed)},
                   {"of these pads", plain_text(all - needed), "0"},
                   {"arithmetic", flops_text(value_of(padded["flops"])), flops_text(value_of(ragged["flops"]))},
                   {"time", seconds_text(value_of(padded["seconds"])), seconds_text(value_of(ragged["seconds"]))}};
  section.findings = {
      tokens_finding(data),
      fmt::format("Of {} in the padded batch {} were pads: {} of what was computed was thrown away.",
                  count_text(all, "token", "tokens"), plain_text(all - needed), percent_text(value_of(data["wasted"]))),
      fmt::format("The padded batch took {}, the ragged one {}: {} with pads.",
                  seconds_text(value_of(padded["seconds"])), seconds_text(value_of(ragged["seconds"])),
                  times_as(value_of(padded["seconds"]), value_of(ragged["seconds"]), "long")),
      fmt::format(
          "In arithmetic the padded batch needs {} and the ragged one {}; with causal attention over whole padded "
          "rows it would be {}.",
          flops_text(value_of(padded["flops"])), flops_text(value_of(ragged["flops"])),
          flops_text(value_of(data["padded_flops_with_masked_attention"])))};
  section.caveats = {
      "How much is wasted is a matter of how different the lengths are: prompts of one length need no pads.",
      "Pads cost again in every decode step of a framework that keeps them in its cache; that is not part of these "
      "times.",
      "For the replies in the padded batch each row of pads chooses one token, too, which is thrown away."};
}

}  // namespace backplane::lab
