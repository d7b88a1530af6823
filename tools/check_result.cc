#include "tools/check_result.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "tools/json_lines.h"

namespace backplane::tools::check {
namespace {

using Json = nlohmann::ordered_json;

// Sums of a device's own add to the error of storing, several times over for long rows; far more is no rounding.
constexpr double kSuspectRatio = 256, kBugRatio = 4096;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string place_text(const conformance::Shape& place) { return fmt::format("[{}]", fmt::join(place, ",")); }

std::string row_text(const OpResult& op) {
  const bool compared = op.compared > 0;
  return fmt::format("{:<13} {:<30} {:<14} {:>9} {:>11} {:<12} {}\n", op.op, op.name, place_text(op.shape),
                     compared ? fmt::format("{:.3g}", op.error) : "-", fmt::format("{:.2g}", op.accumulated),
                     verdict_name(op.verdict()), compared ? place_text(op.place) : op.reason);
}

bool seen(const OpResult& op) { return op.compared + op.not_compared > 0; }

// Of each op the layer that is farthest from the exact result, and all that left the bound.
std::set<const OpResult*> chosen_rows(const CheckResult& result) {
  std::set<const OpResult*> rows;
  std::set<std::string> done;
  const auto kind = [](const OpResult& op) { return op.op + op.name.substr(op.layer < 0 ? 0 : op.name.find('.', 7)); };
  for (const OpResult& op : result.ops) {
    if (!seen(op)) continue;
    if (op.verdict() > Verdict::kRounding) rows.insert(&op);
    if (!done.insert(kind(op)).second) continue;
    const OpResult* worst = &op;
    for (const OpResult& other : result.ops) {
      if (seen(other) && kind(other) == kind(op) && other.error > worst->error) worst = &other;
    }
    rows.insert(worst);
  }
  return rows;
}

std::string logits_text(const LogitsResult& logits) {
  std::string text = fmt::format(
      "logits: {} rows, largest difference {:.3g}, KL mean {:.3g} and largest {:.3g}, {} times the error of storing "
      "alone: {}\n",
      logits.rows, logits.largest_difference, logits.mean_kl(), logits.kl_largest,
      fmt::format("{:.3g}", logits.ratio()), verdict_name(logits.verdict()));
  if (logits.other_class) text += "        NaN or infinity on one side only\n";
  if (logits.changed_by_watching) text += "        not the same bits when nobody watches the ops\n";
  constexpr std::size_t kMostFlips = 8;
  for (std::size_t i = 0; i < std::min(kMostFlips, logits.flips.size()); ++i) {
    const Flip& flip = logits.flips[i];
    text += fmt::format("        row {}: token {} instead of {}, margin {:.3g}{}\n", flip.row, flip.got, flip.want,
                        flip.margin, flip.explained ? ", a near tie" : ", more than rounding explains");
  }
  if (logits.flips.size() > kMostFlips) text += fmt::format("        and {} more\n", logits.flips.size() - kMostFlips);
  return text;
}

// Why runs of ops were not compared, the reason of most first. An op with several reasons counts under its last one.
std::string reasons_text(const CheckResult& result) {
  struct Count {
    std::uint64_t ops = 0, runs = 0;
  };
  std::map<std::string, Count> counts;
  for (const OpResult& op : result.ops) {
    if (op.not_compared == 0) continue;
    Count& count = counts[op.reason];
    ++count.ops;
    count.runs += op.not_compared;
  }
  std::vector<std::pair<std::string, Count>> reasons(counts.begin(), counts.end());
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) { return a.second.runs > b.second.runs; });
  std::string text;
  for (const auto& [reason, count] : reasons) {
    text += fmt::format("     not compared: {} runs of {} ops: {}\n", count.runs, count.ops, reason);
  }
  return text;
}

Json op_json(const OpResult& op) {
  return {
      {"name", op.name},
      {"op", op.op},
      {"layer", op.layer < 0 ? Json(nullptr) : Json(op.layer)},
      {"verdict", verdict_name(op.verdict())},
      {"shape", op.shape},
      {"runs_compared", op.compared},
      {"runs_not_compared", op.not_compared},
      {"reason", op.reason.empty() ? Json(nullptr) : Json(op.reason)},
      {"error", op.compared ? number(op.error) : Json(nullptr)},
      {"worst",
       op.compared
           ? Json{{"index", op.place}, {"got", number(op.got)}, {"want", number(op.want)}, {"bound", number(op.bound)}}
           : Json(nullptr)},
      {"accumulated", number(op.accumulated)},
      {"storage", number(op.storage)}};
}

Json logits_json(const LogitsResult& logits) {
  Json flips = Json::array();
  for (const Flip& flip : logits.flips) {
    flips.push_back({{"row", flip.row},
                     {"want", flip.want},
                     {"got", flip.got},
                     {"margin", flip.margin},
                     {"explained", flip.explained}});
  }
  return {{"verdict", verdict_name(logits.verdict())},
          {"rows", logits.rows},
          {"largest_difference", number(logits.largest_difference)},
          {"kl_mean", number(logits.mean_kl())},
          {"kl_largest", number(logits.kl_largest)},
          {"ratio", number(logits.ratio())},
          {"other_class", logits.other_class},
          {"changed_by_watching", logits.changed_by_watching},
          {"flips", std::move(flips)}};
}

}  // namespace

Verdict verdict_of(double error) {
  if (error <= 1) return Verdict::kRounding;
  return error <= 4 ? Verdict::kSuspect : Verdict::kBug;
}

const char* verdict_name(Verdict verdict) {
  constexpr const char* kNames[] = {"NOT COMPARED", "ROUNDING", "SUSPECT", "BUG"};
  return kNames[static_cast<int>(verdict)];
}

double LogitsResult::ratio() const {
  return storage_square_error > 0 ? std::sqrt(square_error / storage_square_error) : 0;
}

Verdict LogitsResult::verdict() const {
  if (rows == 0) return Verdict::kNotCompared;
  if (other_class || (changed_by_watching && deterministic) || ratio() > kBugRatio * allowance) return Verdict::kBug;
  const bool unexplained = std::any_of(flips.begin(), flips.end(), [](const Flip& f) { return !f.explained; });
  return unexplained || ratio() > kSuspectRatio * allowance ? Verdict::kSuspect : Verdict::kRounding;
}

const OpResult* CheckResult::first(Verdict verdict) const {
  const auto found =
      std::find_if(ops.begin(), ops.end(), [&](const OpResult& op) { return seen(op) && op.verdict() == verdict; });
  return found == ops.end() ? nullptr : &*found;
}

std::uint64_t CheckResult::count(Verdict verdict) const {
  return static_cast<std::uint64_t>(
      std::count_if(ops.begin(), ops.end(), [&](const OpResult& op) { return seen(op) && op.verdict() == verdict; }));
}

std::uint64_t CheckResult::runs_compared() const {
  std::uint64_t runs = 0;
  for (const OpResult& op : ops) runs += op.compared;
  return runs;
}

std::uint64_t CheckResult::runs_not_compared() const {
  std::uint64_t runs = 0;
  for (const OpResult& op : ops) runs += op.not_compared;
  return runs;
}

Verdict CheckResult::verdict() const {
  Verdict worst = logits.verdict();
  if (runs_compared() == 0 && worst != Verdict::kBug) return Verdict::kNotCompared;
  for (const OpResult& op : ops) worst = std::max(worst, op.verdict());
  return worst;
}

std::string table(const CheckResult& result, bool all) {
  std::string text = fmt::format("{} on {} against {}: {} steps, {} tokens\n\n", result.model, result.device,
                                 result.against, result.steps, result.tokens);
  text += fmt::format("{:<13} {:<30} {:<14} {:>9} {:>11} {:<12} {}\n", "op", "where", "shape", "E", "accumulated",
                      "verdict", "worst at");
  const std::set<const OpResult*> rows = chosen_rows(result);
  for (const OpResult& op : result.ops) {
    if (all ? seen(op) : rows.count(&op) > 0) text += row_text(op);
  }
  double kv = 0;
  for (const KvResult& layer : result.kv) kv = std::max(kv, layer.accumulated);
  text += fmt::format("\nKV pages: relative error at most {:.2g} over {} layers\n", kv, result.kv.size());
  text += logits_text(result.logits);
  text += fmt::format("ops: {} ROUNDING, {} SUSPECT, {} BUG, {} NOT COMPARED; runs of ops: {} compared, {} not\n",
                      result.count(Verdict::kRounding), result.count(Verdict::kSuspect), result.count(Verdict::kBug),
                      result.count(Verdict::kNotCompared), result.runs_compared(), result.runs_not_compared());
  text += reasons_text(result);
  if (const OpResult* bug = result.first(Verdict::kBug)) {
    text += fmt::format(
        "first to leave the bound: {} {}: E = {:.3g} at {}: {:.9g} instead of {:.9g}, where {:.3g} is "
        "rounding\n",
        bug->op, bug->name, bug->error, place_text(bug->place), bug->got, bug->want, bug->bound);
  }
  return text + fmt::format("{}\n", verdict_name(result.verdict()));
}

std::string json(const CheckResult& result, const Error* error) {
  const OpResult* bug = result.first(Verdict::kBug);
  Json ops = Json::array(), kv = Json::array();
  for (const OpResult& op : result.ops) {
    if (seen(op)) ops.push_back(op_json(op));
  }
  for (const KvResult& layer : result.kv) {
    kv.push_back(
        {{"layer", layer.layer}, {"accumulated", number(layer.accumulated)}, {"storage", number(layer.storage)}});
  }
  Json report = {{"version", 1},
                 {"model", result.model},
                 {"device", result.device},
                 {"against", result.against},
                 {"fusion", result.fusion},
                 {"verdict", verdict_name(result.verdict())},
                 {"first", bug ? op_json(*bug) : Json(nullptr)},
                 {"steps", result.steps},
                 {"tokens", result.tokens},
                 {"runs_compared", result.runs_compared()},
                 {"runs_not_compared", result.runs_not_compared()},
                 {"ops", std::move(ops)},
                 {"kv", std::move(kv)},
                 {"logits", logits_json(result.logits)}};
  if (error) report.update(json_error(error_code_name(error->code()), error->what()));
  return json_text(report);
}

}  // namespace backplane::tools::check
