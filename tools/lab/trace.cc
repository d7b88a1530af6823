#include "tools/lab/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <numbers>
#include <random>
#include <span>

#include "core/base/error.h"
#include "core/base/mapped_file.h"

namespace backplane::lab {
namespace {

// Of AzureLLMInferenceTrace_conv (CC-BY 4.0): mean and standard deviation of the logarithms, smallest, largest.
struct Lengths {
  double mean, deviation, least, most;
};
constexpr Lengths kPromptLengths = {6.633, 0.985, 2, 14050}, kReplyLengths = {5.019, 0.859, 7, 1000};
constexpr double kGap = 0.181;  // seconds between arrivals, on average

constexpr double kLoad = 3;            // requests arrive so many times as fast as one after another could be served
constexpr double kLeastReply = 4;      // tokens on average: below, batching has nothing to work on
constexpr double kShorterPrompts = 3;  // how much more prompts are shortened than replies, where time is short
constexpr std::string_view kHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";

// In (0, 1]. The library's distributions differ between systems; this doesn't.
double uniform(std::mt19937_64& random) { return (static_cast<double>(random() >> 11) + 1) * 0x1p-53; }

double normal(std::mt19937_64& random) {
  const double radius = std::sqrt(-2 * std::log(uniform(random)));
  return radius * std::cos(2 * std::numbers::pi * uniform(random));
}

std::uint32_t length(std::mt19937_64& random, const Lengths& of) {
  const double value = std::exp(of.mean + of.deviation * normal(random));
  return static_cast<std::uint32_t>(std::lround(std::clamp(value, of.least, of.most)));
}

[[noreturn]] void bad_line(const std::string& name, std::size_t line, std::string_view what) {
  throw Error(ErrorCode::kBadFile, what, fmt::format("{}, line {}", name, line),
              fmt::format("the file must have the columns {}", kHeader));
}

template <class Number>
bool parse(std::string_view text, Number& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

// Days since 1970.
std::int64_t days(int year, int month, int day) {
  return std::chrono::sys_days(std::chrono::year(year) / month / day).time_since_epoch().count();
}

// "2023-11-16 18:15:46.6805900" in seconds; false for anything else.
bool parse_time(std::string_view text, double& seconds) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0;
  double second = 0;
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || text[10] != ' ' || text[13] != ':' || text[16] != ':') {
    return false;
  }
  if (!parse(text.substr(0, 4), year) || !parse(text.substr(5, 2), month) || !parse(text.substr(8, 2), day) ||
      !parse(text.substr(11, 2), hour) || !parse(text.substr(14, 2), minute) || !parse(text.substr(17), second)) {
    return false;
  }
  if (month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || !(second >= 0 && second < 61)) {
    return false;
  }
  seconds = static_cast<double>(days(year, month, day) * 86400 + hour * 3600 + minute * 60) + second;
  return true;
}

TraceRequest parse_line(std::string_view line, const std::string& name, std::size_t number) {
  const std::size_t first = line.find(','), second = line.find(',', first + 1);
  if (first == line.npos || second == line.npos) bad_line(name, number, "a line with fewer than three columns");
  TraceRequest request;
  if (!parse_time(line.substr(0, first), request.arrival_s)) bad_line(name, number, "not a time");
  if (!parse(line.substr(first + 1, second - first - 1), request.prompt) ||
      !parse(line.substr(second + 1), request.generated)) {
    bad_line(name, number, "not a number of tokens");
  }
  request.prompt = std::max(request.prompt, 1u);
  request.generated = std::max(request.generated, 1u);
  return request;
}

// By what lengths are multiplied.
struct Scales {
  double prompt = 1, reply = 1;

  double seconds(const TraceRequest& request, const Speed& speed) const {
    return prompt * request.prompt * speed.token_s + reply * request.generated * speed.step_s;
  }
  double tokens(const TraceRequest& request) const { return prompt * request.prompt + reply * request.generated; }
};

double serial_seconds(std::span<const TraceRequest> requests, const Scales& scales, const Speed& speed) {
  double seconds = 0;
  for (const TraceRequest& request : requests) seconds += scales.seconds(request, speed);
  return seconds;
}

Scales choose_scales(std::span<const TraceRequest> requests, const BatchingSizes& sizes, const Speed& speed,
                     double longest) {
  double most = 1, replies = 0;
  for (const TraceRequest& request : requests) {
    most = std::max(most, Scales().tokens(request));
    replies += request.generated;
  }
  const double fit = std::min(1.0, longest / most);
  const double serial = serial_seconds(requests, {fit, fit}, speed);
  if (serial <= sizes.seconds) return {fit, fit};
  const double shorter = serial_seconds(requests, {fit / kShorterPrompts, fit}, speed);
  const double least = std::min(fit, kLeastReply * static_cast<double>(requests.size()) / replies);
  const double reply = std::clamp(fit * sizes.seconds / shorter, least, fit);
  return {reply / kShorterPrompts, reply};
}

std::uint32_t scaled(std::uint32_t length, double scale) {
  return static_cast<std::uint32_t>(std::max(1.0, std::round(length * scale)));
}

}  // namespace

Trace random_trace(std::uint32_t requests, std::uint64_t seed) {
  Trace trace{.source = fmt::format("drawn at random (seed {}) with the lengths and gaps of the conversations in the "
                                    "Azure LLM inference trace of 2023",
                                    seed),
              .requests = {}};
  std::mt19937_64 random(seed);
  double now = 0;
  for (std::uint32_t i = 0; i < requests; ++i) {
    TraceRequest& request = trace.requests.emplace_back();
    request.arrival_s = now;
    request.prompt = length(random, kPromptLengths);
    request.generated = length(random, kReplyLengths);
    now += -kGap * std::log(uniform(random));
  }
  return trace;
}

Trace parse_trace(std::string_view text, const std::string& name, std::size_t most) {
  Trace trace{.source = fmt::format("the first requests of {}", name), .requests = {}};
  std::size_t number = 0;
  while (!text.empty() && trace.requests.size() < most) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (number == 1) {
      if (line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
      if (line != kHeader) bad_line(name, number, "not a request trace");
      continue;
    }
    if (line.empty()) continue;
    const TraceRequest request = parse_line(line, name, number);
    if (!trace.requests.empty() && request.arrival_s < trace.requests.back().arrival_s) {
      bad_line(name, number, "an arrival before the one above it");
    }
    trace.requests.push_back(request);
  }
  if (trace.requests.empty()) bad_line(name, number, "a trace without requests");
  const double start = trace.requests.front().arrival_s;
  for (TraceRequest& request : trace.requests) request.arrival_s -= start;
  return trace;
}

Trace read_trace(const std::filesystem::path& path, std::size_t most) {
  const MappedFile file(path);
  return parse_trace({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()},
                     path.filename().string(), most);
}

ScaledTrace scale_trace(const Trace& trace, const BatchingSizes& sizes, const Speed& speed, const Room& room) {
  const std::span<const TraceRequest> all = trace.requests;
  std::size_t count = std::min<std::size_t>(sizes.requests, all.size());
  const double longest = room.context - 2;  // rounding may add one to each length
  const Scales scales = choose_scales(all.first(count), sizes, speed, longest);
  double expected = serial_seconds(all.first(count), scales, speed);
  for (; count < all.size() && scales.tokens(all[count]) <= longest; ++count) {
    const double more = scales.seconds(all[count], speed);
    if (expected + more > sizes.seconds) break;
    expected += more;
  }
  ScaledTrace out{.requests = {}, .prompt_scale = scales.prompt, .reply_scale = scales.reply, .serial_s = expected};
  const double span = all[count - 1].arrival_s;
  if (span > 0) out.time_scale = expected / kLoad / span;
  for (const TraceRequest& request : all.first(count)) {
    out.requests.push_back({request.arrival_s * out.time_scale, scaled(request.prompt, scales.prompt),
                            scaled(request.generated, scales.reply)});
  }
  return out;
}

}  // namespace backplane::lab
