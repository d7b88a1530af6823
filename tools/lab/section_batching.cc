#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tools/lab/sections.h"

namespace backplane::lab {
namespace {

struct Way {
  const char* id;
  const char* name;
  Color color;
};
constexpr std::array<Way, 3> kWays = {{{"none", "no batching", Color::kMuted},
                                       {"static", "static batching", Color::kSecond},
                                       {"continuous", "continuous batching", Color::kFirst}}};

constexpr double kFewRequests = 40;  // 5% of them are one or two

LineChart occupancy_chart(const Json& data, const Way& way) {
  LineChart chart{.title = fmt::format("sequences in a step over time, {}", way.name),
                  .x_label = "time since the first arrival",
                  .y_label = fmt::format("sequences in a step: {}", way.name),
                  .x_text = seconds_text,
                  .y_text = plain_text,
                  .flat = true,
                  .y_most = value_of(data["seats"])};
  for (const Way& each : kWays) chart.x_most = std::max(chart.x_most, value_of(data[each.id]["seconds"]));
  Series series{.color = way.color, .mark = Mark::kFilled};
  for (const Json& sample : data[way.id]["occupancy"]) {
    series.points.emplace_back(value_of(sample["at_s"]), value_of(sample["sequences"]));
  }
  chart.series = {std::move(series)};
  return chart;
}

// The part of the requests that was done within a time of their arrival.
LineChart latency_chart(const Json& data, const char* key, std::string title, std::string x_label) {
  LineChart chart{.title = std::move(title),
                  .x_label = std::move(x_label),
                  .y_label = "part of the requests",
                  .x_text = seconds_text,
                  .y_text = percent_text,
                  .y_most = 1};
  for (const Way& way : kWays) chart.x_most = std::max(chart.x_most, value_of(data[way.id][key]["worst"]));
  for (const Way& way : kWays) {
    std::vector<double> seconds;
    for (const Json& request : data[way.id]["requests"]) seconds.push_back(value_of(request[key]));
    std::sort(seconds.begin(), seconds.end());
    Series series{.name = way.name, .color = way.color, .mark = Mark::kSteps, .points = {{0, 0}}};
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      series.points.emplace_back(seconds[i], static_cast<double>(i + 1) / static_cast<double>(seconds.size()));
    }
    series.points.emplace_back(chart.x_most, 1);
    chart.series.push_back(std::move(series));
  }
  return chart;
}

BarChart throughput_chart(const Json& data) {
  BarChart chart{.title = "generated tokens per second"};
  for (const Way& way : kWays) {
    const double rate = value_of(data[way.id]["tokens_per_s"]);
    chart.bars.push_back(
        {.label = way.name, .segments = {{rate, way.color}}, .note = fmt::format("{} tokens/s", plain_text(rate))});
  }
  return chart;
}

Table table(const Json& data) {
  Table rows = {{"", "none", "static", "continuous"}};
  const auto add = [&](const char* name, TextOf text, auto&& member) {
    std::vector<std::string> row = {name};
    for (const Way& way : kWays) row.push_back(text(value_of(member(data[way.id]))));
    rows.push_back(std::move(row));
  };
  add("time for all requests", seconds_text, [](const Json& way) { return way["seconds"]; });
  add("generated tokens per second", plain_text, [](const Json& way) { return way["tokens_per_s"]; });
  add("steps", plain_text, [](const Json& way) { return way["steps"]; });
  add("sequences in a step, on average", plain_text, [](const Json& way) { return way["mean_occupancy"]; });
  add("time to first token, p50", seconds_text, [](const Json& way) { return way["first_token_s"]["p50"]; });
  add("time to first token, p95", seconds_text, [](const Json& way) { return way["first_token_s"]["p95"]; });
  add("time to first token, p99", seconds_text, [](const Json& way) { return way["first_token_s"]["p99"]; });
  add("time to the end, p50", seconds_text, [](const Json& way) { return way["total_s"]["p50"]; });
  add("time to the end, p95", seconds_text, [](const Json& way) { return way["total_s"]["p95"]; });
  add("time to the end, p99", seconds_text, [](const Json& way) { return way["total_s"]["p99"]; });
  return rows;
}

// After "gave".
std::string throughput_text(double rate, double base, const char* of) {
  if (is_about(rate, base)) return fmt::format("about the throughput of {}", of);
  return fmt::format("{} times the throughput of {}", plain_text(rate / base), of);
}

std::string comparison(const Json& data) {
  const auto rate = [&](const char* way) { return value_of(data[way]["tokens_per_s"]); };
  return fmt::format("Continuous batching gave {} and {}.",
                     throughput_text(rate("continuous"), rate("none"), "no batching"),
                     throughput_text(rate("continuous"), rate("static"), "static batching"));
}

std::vector<std::string> findings(const Json& data) {
  const Json &none = data["none"], &fixed = data["static"], &continuous = data["continuous"];
  const auto rate = [](const Json& way) { return value_of(way["tokens_per_s"]); };
  const auto within = [&](const char* key, const char* part) {
    return fmt::format("{}, {} and {}", seconds_text(value_of(none[key][part])),
                       seconds_text(value_of(fixed[key][part])), seconds_text(value_of(continuous[key][part])));
  };
  const std::string requests = count_text(static_cast<double>(data["requests"].size()), "request", "requests");
  std::vector<std::string> out;
  out.push_back(
      data["equal_tokens"].get<bool>()
          ? fmt::format("All {} got the same tokens in all three ways.", requests)
          : fmt::format("{} of {} got the same tokens in all three ways. Where a device rounds differently in "
                        "different batches, that can decide between tokens of almost equal logits.",
                        plain_text(value_of(data["equal_requests"])), requests));
  out.push_back(fmt::format(
      "Generated tokens per second: {} without batching, {} with static batching, {} with continuous batching. {}",
      plain_text(rate(none)), plain_text(rate(fixed)), plain_text(rate(continuous)), comparison(data)));
  out.push_back(
      fmt::format("While the model worked, a step had on average {} sequences with static batching and {} with "
                  "continuous batching, "
                  "of {} that there was room for.",
                  plain_text(value_of(fixed["mean_occupancy"])), plain_text(value_of(continuous["mean_occupancy"])),
                  plain_text(value_of(data["seats"]))));
  out.push_back(
      fmt::format("Without batching, with static and with continuous batching, half of the requests had their first "
                  "token within {} of arriving, and 95 of 100 within {}.",
                  within("first_token_s", "p50"), within("first_token_s", "p95")));
  out.push_back(fmt::format("Half of the requests had ended within {}, and 95 of 100 within {}.",
                            within("total_s", "p50"), within("total_s", "p95")));
  return out;
}

}  // namespace

void describe_batching(const Json& data, Section& section) {
  const auto count = static_cast<double>(data["requests"].size());
  const std::string requests = count_text(count, "request", "requests");
  section.headline = comparison(data);
  section.method = {
      fmt::format(
          "{}, {}, with {} and {} in all, were served in three ways. No batching: one after another, in order of "
          "arrival. Static batching: those who wait, at most {}, begin together; the next ones begin when the "
          "last of them has ended. Continuous batching: at most {} at a time, too, but whoever waits takes a seat "
          "as soon as one is free, between any two steps.",
          requests, data["trace"].get<std::string>(),
          count_text(value_of(data["prompt_tokens"]), "prompt token", "prompt tokens"),
          count_text(value_of(data["generated_tokens"]), "generated token", "generated tokens"),
          count_text(value_of(data["seats"]), "request", "requests"), plain_text(value_of(data["seats"]))),
      fmt::format(
          "To suit this model and device, the lengths of prompts were multiplied by {}, those of replies by {} (and "
          "rounded to at least 1), and the times of arrival by {}. So all arrive within {}, while serving them one "
          "after "
          "another takes {}. The clock counts the time that steps really took; where there is nothing to do until the "
          "next arrival, it is put forward.",
          plain_text(value_of(data["prompt_scale"])), plain_text(value_of(data["reply_scale"])),
          plain_text(value_of(data["time_scale"])), seconds_text(value_of(data["requests"].back()["arrival_s"])),
          seconds_text(value_of(data["none"]["busy_s"])))};
  section.plots.push_back(
      {"Throughput: generated tokens per second, of all requests together.", throughput_chart(data)});
  const char* const captions[] = {
      "No batching: one sequence in every step, whoever waits.",
      "Static batching: seats of requests that have ended stay empty until the batch is over.",
      "Continuous batching: a free seat is taken as soon as somebody waits for it."};
  for (std::size_t i = 0; i < kWays.size(); ++i) {
    section.plots.push_back({captions[i], occupancy_chart(data, kWays[i])});
  }
  section.plots.push_back(
      {"How long requests waited for their first token: the part of them that had it within a time.",
       latency_chart(data, "first_token_s", "part of the requests with a first token against time since arrival",
                     "time from arrival to first token")});
  section.plots.push_back({"How long they took in all: the part of them that had ended within a time.",
                           latency_chart(data, "total_s", "part of the requests that ended against time since arrival",
                                         "time from arrival to end")});
  section.table = table(data);
  section.findings = findings(data);
  section.caveats = {
      "Static batching is treated kindly here: prompts are not padded, and rows that have ended are not computed any "
      "further, as simple implementations do.",
      "What a larger batch gains depends on the device: one that waits for memory in decode gains most, because all "
      "sequences share one reading of the matrices.",
      fmt::format("The three ways took turns, {}; of each the fastest run counts. They served {}.{}",
                  count_text(value_of(data["turns"]), "time each", "times each"), requests,
                  count <= kFewRequests ? " So few that one or two slow ones decide p95 and p99." : "")};
}

}  // namespace backplane::lab
