// The summary for scripts: JSON, and JUnit's XML as CI systems read it.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/conformance/conformance.h"

namespace backplane::conformance {
namespace {

using Json = nlohmann::ordered_json;

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPassed:
      return "passed";
    case Verdict::kFailed:
      return "failed";
    default:
      return "skipped";
  }
}

// What XML may hold: the five characters with a meaning are escaped, control characters can't be said at all.
std::string xml(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return out;
}

std::string op_of(const std::string& name) { return name.substr(0, name.find('/')); }

}  // namespace

std::string shell_word(const std::string& text) {
  constexpr const char* kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=:,./";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string replay_command(const std::string& replay, const std::string& name, std::uint64_t seed) {
  return fmt::format("{} --filter {} --seed {}", replay, shell_word(name), seed);
}

std::string json_report(const Summary& summary, const std::string& replay) {
  Json cases = Json::array();
  std::uint64_t suspects = 0;
  for (const Result& result : summary.results) {
    Json each = {{"name", result.name},
                 {"op", op_of(result.name)},
                 {"verdict", verdict_name(result.verdict)},
                 {"error", std::isfinite(result.error) ? Json(result.error) : Json("infinite")},
                 {"seconds", result.seconds}};
    if (is_suspect(result)) each["suspect"] = true, ++suspects;
    if (!result.text.empty()) each["reason"] = result.text;
    if (result.verdict == Verdict::kFailed) each["replay"] = replay_command(replay, result.name, summary.seed);
    cases.push_back(std::move(each));
  }
  const Json report = {{"version", 1},
                       {"device", summary.device},
                       {"description", summary.description},
                       {"seed", summary.seed},
                       {"passed", summary.count(Verdict::kPassed)},
                       {"failed", summary.count(Verdict::kFailed)},
                       {"skipped", summary.count(Verdict::kSkipped)},
                       {"suspect", suspects},
                       {"cases", std::move(cases)}};
  return report.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string junit_report(const Summary& summary, const std::string& replay) {
  double seconds = 0;
  for (const Result& result : summary.results) seconds += result.seconds;
  std::string out = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
      "<testsuite name=\"conform {}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\" errors=\"0\" time=\"{:.3f}\">\n",
      xml(summary.device), summary.results.size(), summary.count(Verdict::kFailed), summary.count(Verdict::kSkipped),
      seconds);
  for (const Result& result : summary.results) {
    out += fmt::format("<testcase classname=\"{}.{}\" name=\"{}\" time=\"{:.3f}\"", xml(summary.device),
                       xml(op_of(result.name)), xml(result.name), result.seconds);
    if (result.verdict == Verdict::kPassed) {
      out += "/>\n";
    } else if (result.verdict == Verdict::kSkipped) {
      out += fmt::format("><skipped message=\"{}\"/></testcase>\n", xml(result.text));
    } else {
      out += fmt::format("><failure message=\"{}\">{}</failure></testcase>\n", xml(result.text),
                         xml(replay_command(replay, result.name, summary.seed)));
    }
  }
  return out + "</testsuite>\n</testsuites>\n";
}

}  // namespace backplane::conformance
