#include <fmt/format.h>

#include "tools/lab/sections.h"

namespace backplane::lab {
namespace {

LineChart steps_chart(const Json& data) {
  LineChart chart{.title = "time of a decode step against tokens in the cache, with a fitted line",
                  .x_label = "tokens in the cache, N",
                  .y_label = "time of a decode step",
                  .x_text = plain_text,
                  .y_text = seconds_text};
  Series middle{.name = "median step", .color = Color::kMuted, .mark = Mark::kDots},
      measured{.name = "fastest step", .mark = Mark::kDots},
      fitted{.name = "fitted line", .color = Color::kSecond, .mark = Mark::kGuide};
  for (const Json& row : data["lengths"]) {
    const double context = value_of(row["context"]);
    middle.points.emplace_back(context, value_of(row["median_s"]));
    measured.points.emplace_back(context, value_of(row["seconds"]));
  }
  if (const Json& fit = data["fit"]; !fit.is_null()) {
    const double intercept = value_of(fit["intercept"]), slope = value_of(fit["slope"]);
    for (const double x : {0.0, value_of(data["lengths"].back()["context"])}) {
      fitted.points.emplace_back(x, intercept + slope * x);
    }
  }
  chart.series = {std::move(middle), std::move(fitted), std::move(measured)};
  return chart;
}

std::string verdict(const Json& fit) {
  const double slope = value_of(fit["slope"]), intercept = value_of(fit["intercept"]);
  if (!(slope > 0)) {
    return "The line does not rise: at these lengths the part of a step that grows with N is smaller than the noise of "
           "the measurement. Longer contexts would show it.";
  }
  const double r2 = number(fit["r2"]).value_or(0);
  std::string text = r2 >= 0.9 ? "A straight line describes these steps well: a step takes a fixed time and a time in "
                                 "proportion to N."
                     : r2 >= 0.5
                         ? "A straight line describes these steps roughly; the rest is noise or something that the "
                           "line does not know of."
                         : "The steps grow, but the noise is larger than what the line explains: trust its "
                           "direction more than its figures.";
  if (intercept > 0) {
    text += fmt::format(" By the line, a step takes twice as long as with an empty cache at about {}.",
                        count_text(intercept / slope, "token", "tokens"));
  }
  return text;
}

}  // namespace

void describe_context(const Json& data, Section& section) {
  const Json &lengths = data["lengths"], &fit = data["fit"];
  const Json &first = lengths.front(), &last = lengths.back();
  section.headline = fmt::format("With every token in the cache the time of a step {}.",
                                 fit.is_null() ? "can't be told" : slope_text(value_of(fit["slope"])));
  section.method = {
      fmt::format("One text was made longer and longer, then shorter again; what the cache held of it stayed there. At "
                  "each of {}, {} "
                  "were generated, one in each step, and the fastest step counts: whatever else the machine does makes "
                  "a step slower, never faster. A line was fitted to these times by least squares; R² says which part "
                  "of their variation it explains (1: all points lie on it).",
                  count_text(static_cast<double>(lengths.size()), "length", "lengths"),
                  count_text(value_of(data["steps_at_each"]), "token", "tokens"))};
  section.plots = {
      {"The time of a step that computes one token. The time axis begins at zero: the part below the line's "
       "left end does not depend on N.",
       steps_chart(data)}};
  section.table = {{"tokens in the cache", "fastest step", "median step", "arithmetic", "memory traffic"}};
  for (const Json& row : lengths) {
    section.table.push_back({plain_text(value_of(row["context"])), seconds_text(value_of(row["seconds"])),
                             seconds_text(value_of(row["median_s"])), flops_text(value_of(row["flops"])),
                             bytes_text(value_of(row["bytes"]))});
  }
  section.findings = {fmt::format("With {} tokens in the cache a step took {}, with {} it took {}.",
                                  plain_text(value_of(first["context"])), seconds_text(value_of(first["seconds"])),
                                  plain_text(value_of(last["context"])), seconds_text(value_of(last["seconds"]))),
                      fmt::format("Growth: {}.", fit_text(fit, "each token in the cache"))};
  if (!fit.is_null()) section.findings.push_back(verdict(fit));
  section.findings.push_back(
      fmt::format("Each token in the cache takes {} of memory, and adds up to {} of reading and {} to every step. All "
                  "else in a step, "
                  "the layers' matrices above all, is the same whatever N is. So a step with the cache is O(N): "
                  "without it, N tokens "
                  "would be computed instead of one.",
                  bytes_text(value_of(data["kv_bytes_per_token"])), bytes_text(value_of(data["kv_bytes_per_token"])),
                  flops_text(value_of(data["attention_flops_per_token"]))));
  section.caveats = {"The range of lengths is what fits the time given to this experiment and the model's context."};
  if (const double window = value_of(data["smallest_window"]); window > 0) {
    section.caveats.push_back(
        fmt::format("Some layers of this model look back at no more than {}: their part of a step stops growing there.",
                    count_text(window, "token", "tokens")));
  }
}

}  // namespace backplane::lab
