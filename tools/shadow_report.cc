#include "tools/shadow_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

namespace backplane::tools {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }
Json text(const std::string& value) { return value.empty() ? Json() : Json(value); }

Json latest(const models::ShadowReport& report) {
  Json list = Json::array();
  for (const models::Disagreement& each : report.latest) {
    list.push_back({{"step", each.step},
                    {"position", each.position},
                    {"got", each.got},
                    {"want", each.want},
                    {"margin", number(each.margin)},
                    {"op", text(each.op)},
                    {"error", each.op.empty() ? Json() : number(each.error)}});
  }
  return list;
}

// Of the disagreements that are remembered.
double largest_margin(const models::ShadowReport& report, const std::string& op) {
  double margin = 0;
  for (const models::Disagreement& each : report.latest) {
    if (each.op == op) margin = std::max(margin, each.margin);
  }
  return margin;
}

}  // namespace

Json shadow_json(const Shadow& shadow) {
  const models::ShadowReport report = shadow.record->report();
  Json by_op = Json::array();
  for (const auto& [op, count] : report.by_op) by_op.push_back({{"op", op}, {"count", count}});
  return {{"device", shadow.device},
          {"rate", shadow.rate},
          {"steps", report.steps},
          {"sampled", report.sampled},
          {"rows", report.rows},
          {"ties", report.ties},
          {"disagreements", report.disagreements},
          {"by_op", std::move(by_op)},
          {"latest", latest(report)},
          {"largest_difference", number(report.largest_difference)},
          {"mean_kl", number(report.mean_kl())},
          {"failures", report.failures},
          {"failure", text(report.failure)},
          {"dropped", report.dropped}};
}

void print_shadow(const Shadow& shadow) {
  const models::ShadowReport report = shadow.record->report();
  std::string line = fmt::format(
      "backplane: shadow {}: {} of {} steps run again, {} rows compared, {} disagreements, {} ties, logits differ by "
      "{:.2g} at most",
      shadow.device, report.sampled, report.steps, report.rows, report.disagreements, report.ties,
      report.largest_difference);
  if (report.failures > 0) {
    line += fmt::format("; {} failures{}: {}", report.failures, report.dropped ? " and dropped" : "", report.failure);
  }
  std::fprintf(stderr, "%s\n", line.c_str());
  for (const auto& [op, count] : report.by_op) {
    line = fmt::format("backplane: shadow {}: {} x {} differs most, tokens by {:.3g}", shadow.device, count, op,
                       largest_margin(report, op));
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

}  // namespace backplane::tools
