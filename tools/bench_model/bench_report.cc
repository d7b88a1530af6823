#include "tools/bench_model/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tools/lab/statistics.h"
#include "tools/text_table.h"

namespace backplane::bench {
namespace {

using lab::figure;
using lab::number;

const char* kind_name(Kind kind) { return kind == Kind::kPrefill ? "prefill" : "decode"; }

Json case_json(const Case& what) {
  return {{"kind", kind_name(what.kind)}, {"tokens", what.tokens}, {"batch", what.batch}, {"depth", what.depth}};
}

// The type that most bytes of the layers' matrices have; kNone for a model without.
DType main_type(const models::ModelFile& file) {
  std::map<DType, std::uint64_t> bytes;
  for (const models::LayerSpec& layer : file.spec().layers) {
    for (const models::LinearRef* linear :
         {&layer.q, &layer.k, &layer.v, &layer.qkv, &layer.o, &layer.gate, &layer.up, &layer.down}) {
      const auto* tensor = linear->weight.present() ? file.container().find(linear->weight.name) : nullptr;
      if (tensor && tensor->type) bytes[*tensor->type] += tensor->data.size();
    }
  }
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? DType::kNone : most->first;
}

// Matrices of blocks can be multiplied with 8-bit activations; others are not.
bool quantized(const models::ModelFile& file) { return is_quantized(main_type(file)); }

Json result_json(const Report& report, const Measured& measured) {
  const Case& what = measured.what;
  std::vector<double> rates;
  for (const double seconds : measured.seconds) rates.push_back(static_cast<double>(what.new_tokens()) / seconds);
  const double middle = lab::median(rates), seconds = static_cast<double>(what.new_tokens()) / middle;
  const auto [least, most] = std::minmax_element(rates.begin(), rates.end());
  Json json = case_json(what);
  json["tokens_per_s"] = figure(middle);
  json["spread"] = figure((*most - *least) / middle);
  json["runs"] = Json::array();
  for (const double rate : rates) json["runs"].push_back(figure(rate));
  json["steps_recorded"] = measured.steps_recorded;
  json["steps_launched"] = measured.steps_launched;
  const lab::Work work = work_of(report.work, what, report.step_tokens);
  json["bytes_per_s"] = figure(work.bytes / seconds);
  json["operations_per_s"] = figure(work.flops / seconds);
  if (!report.roofs) return json;
  const Roofs& roofs = *report.roofs;
  const bool int8 = roofs.int8 && quantized(report.file);
  const double arithmetic = int8 ? roofs.int8->per_second : roofs.f32.per_second;
  json["bandwidth_share"] = figure(work.bytes / seconds / roofs.read.per_second);
  json["arithmetic_share"] = figure(work.flops / seconds / arithmetic);
  json["arithmetic_roof"] = int8 ? "int8" : "f32";
  return json;
}

Json roofs_json(const Report& report) {
  if (!report.roofs) return {};
  const auto one = [](const Roof& roof, const char* unit) {
    return Json{{unit, figure(roof.per_second)}, {"probe", roof.probe}};
  };
  const Roofs& roofs = *report.roofs;
  return {{"read", one(roofs.read, "bytes_per_s")},
          {"f32", one(roofs.f32, "operations_per_s")},
          {"int8", roofs.int8 ? one(*roofs.int8, "operations_per_s") : Json{}}};
}

Json table_json(const OpTable& table) {
  std::vector<std::pair<std::uint32_t, device::OpTime>> ops(table.ops.begin(), table.ops.end());
  std::sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  Json json = case_json(table.what);
  json["seconds"] = figure(table.seconds);
  json["ops"] = Json::array();
  for (const auto& [code, time] : ops) {
    json["ops"].push_back({{"op", device::op_name(code)},
                           {"count", time.count},
                           {"seconds", figure(time.seconds)},
                           {"share", figure(time.seconds / table.seconds)}});
  }
  return json;
}

std::string case_text(const Json& row) {
  std::string text = fmt::format("{} {}", row["kind"].get<std::string>(), row["tokens"].get<std::uint32_t>());
  if (row["batch"] != 1) text += fmt::format(", batch {}", row["batch"].get<std::uint32_t>());
  if (row["depth"] != 0) text += fmt::format(", depth {}", row["depth"].get<std::uint32_t>());
  return text;
}

std::string share_text(const Json& row, const char* key) {
  return row.contains(key) ? lab::percent_text(number(row[key]).value_or(0)) : "-";
}

std::string results_text(const Json& report) {
  std::vector<std::vector<std::string>> rows = {
      {"", "tokens/s", "spread", "memory", "of roof", "arithmetic", "of roof"}};
  for (const Json& row : report["results"]) {
    rows.push_back({case_text(row), lab::plain_text(row["tokens_per_s"]), lab::percent_text(row["spread"]),
                    lab::byte_rate_text(row["bytes_per_s"]), share_text(row, "bandwidth_share"),
                    fmt::format("{} Gop/s", lab::plain_text(row["operations_per_s"].get<double>() / 1e9)),
                    share_text(row, "arithmetic_share")});
  }
  std::string out = tools::table_text(rows);
  for (const Json& row : report["skipped"]) {
    out += fmt::format("  {}: not measured: {}\n", case_text(row), row["reason"].get<std::string>());
  }
  return out;
}

std::string roofs_text(const Json& roofs) {
  if (roofs.is_null()) return {};
  std::string out =
      fmt::format("\nRoofs, probed in this run\n  read      {} ({})\n",
                  lab::byte_rate_text(roofs["read"]["bytes_per_s"]), roofs["read"]["probe"].get<std::string>());
  for (const auto& [key, name] : {std::pair{"f32", "float32"}, std::pair{"int8", "8-bit  "}}) {
    if (roofs[key].is_null()) {
      out += fmt::format("  {}   not probed: there is no kernel for this processor\n", name);
      continue;
    }
    out +=
        fmt::format("  {}   {} Gop/s ({})\n", name, lab::plain_text(roofs[key]["operations_per_s"].get<double>() / 1e9),
                    roofs[key]["probe"].get<std::string>());
  }
  return out;
}

std::string ops_text(const Json& ops) {
  if (ops.contains("skipped")) {
    return fmt::format("\nTime per op: not measured: {}\n", ops["skipped"].get<std::string>());
  }
  std::string out;
  for (const Json& table : ops["tables"]) {
    std::vector<std::vector<std::string>> rows = {
        {fmt::format("Time per op, {}", case_text(table)), "count", "seconds", "share"}};
    double rest = number(table["seconds"]).value_or(0);
    const double whole = rest;
    for (const Json& op : table["ops"]) {
      const double seconds = number(op["seconds"]).value_or(0);
      rest -= seconds;
      rows.push_back({op["op"].get<std::string>(), lab::plain_text(op["count"]), lab::seconds_text(seconds),
                      lab::percent_text(op["share"])});
    }
    rows.push_back({"outside of ops: engine, sampling", "", lab::seconds_text(std::max(0.0, rest)),
                    lab::percent_text(std::max(0.0, rest) / whole)});
    out += "\n";
    out += tools::table_text(rows);
  }
  return out;
}

}  // namespace

Json report_json(const Report& report) {
  const DType main = main_type(report.file);
  Json json = {{"model", report.file.container().path().filename().string()},
               {"architecture", report.file.spec().architecture},
               {"parameters", report.file.parameters()},
               {"weight_type", main != DType::kNone ? Json(dtype_name(main)) : Json{}},
               {"kv_type", dtype_name(report.model.kv_type())},
               {"device", report.device},
               {"threads", report.threads},
               {"step_tokens", report.step_tokens},
               {"load_s", figure(report.load_s)}};
  json["results"] = Json::array();
  for (const Measured& measured : report.measured) json["results"].push_back(result_json(report, measured));
  json["skipped"] = Json::array();
  for (const Skipped& skipped : report.skipped) {
    json["skipped"].push_back(case_json(skipped.what));
    json["skipped"].back()["reason"] = skipped.reason;
  }
  json["roofs"] = roofs_json(report);
  json["memory"] = {{"peak_resident", report.peak_bytes},
                    {"weights", report.memory.weights},
                    {"kv", report.memory.kv},
                    {"workspace", report.memory.workspace}};
  if (!report.no_ops.empty()) {
    json["ops"] = {{"skipped", report.no_ops}};
  } else {
    json["ops"]["tables"] = Json::array();
    for (const OpTable& table : report.ops) json["ops"]["tables"].push_back(table_json(table));
  }
  json["fallbacks"] = Json::array();
  for (const device::Fallback& entry : report.model.fallbacks()) {
    json["fallbacks"].push_back(
        {{"op", entry.op}, {"device", entry.device}, {"count", entry.count}, {"reason", entry.reason}});
  }
  json["kernels"] = Json::array();
  for (const device::KernelUse& use : report.model.kernels()) {
    json["kernels"].push_back({{"op", use.op},
                               {"device", use.device},
                               {"shape", use.shape},
                               {"fewest_tokens", use.fewest_tokens},
                               {"most_tokens", use.most_tokens},
                               {"kernel", use.kernel}});
  }
  return json;
}

std::string report_text(const Json& report) {
  std::string out =
      fmt::format("{} ({}, KV {}) on {}, {}\nloaded in {}, at most {} resident\n\n", report["model"].get<std::string>(),
                  report["weight_type"].is_string() ? report["weight_type"].get<std::string>() : "no type",
                  report["kv_type"].get<std::string>(), report["device"].get<std::string>(),
                  lab::count_text(report["threads"].get<unsigned>(), "thread", "threads"),
                  lab::seconds_text(report["load_s"]), lab::bytes_text(report["memory"]["peak_resident"]));
  out += results_text(report) + roofs_text(report["roofs"]) + ops_text(report["ops"]);
  if (!report["roofs"].is_null()) {
    const bool int8 = !report["results"].empty() && report["results"][0].value("arithmetic_roof", "") == "int8";
    out += fmt::format(
        "\nMemory and arithmetic are the least that a step needs, by formula: every matrix and the K and V that are\n"
        "seen move once. Arithmetic is compared with the {} roof. All roofs are those of the host's processor.\n",
        int8 ? "8-bit" : "float32");
  }
  if (!report["fallbacks"].empty())
    out += "Some ops did not run on the device that was chosen; --verbose lists them.\n";
  return out;
}

}  // namespace backplane::bench
