#include "tools/lab/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <span>
#include <string_view>

namespace backplane::lab {
namespace {

constexpr double kSame = 0.05;  // measurements that differ by less are called the same

double rounded(double value, int digits) {
  return std::strtod(fmt::format("{:.{}e}", value, digits - 1).c_str(), nullptr);
}

std::string with_commas(const std::string& digits) {
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const std::size_t left = digits.size() - i;
    if (i > 0 && left % 3 == 0 && digits[i - 1] != '-') out += ',';
    out += digits[i];
  }
  return out;
}

struct Unit {
  double size;
  std::string_view name;
};

// The largest unit of which there is at least one. `units`: from small to large.
std::string scaled_text(double value, std::span<const Unit> units) {
  if (!std::isfinite(value)) return "no figure";
  if (value == 0) return "0";
  const double shown = rounded(value, 3);
  const Unit* unit = &units.front();
  for (const Unit& each : units) {
    if (std::abs(shown) >= each.size) unit = &each;
  }
  return fmt::format("{} {}", plain_text(shown / unit->size), unit->name);
}

}  // namespace

Json figure(double value) {
  if (!std::isfinite(value)) return {};
  if (value == std::floor(value) && std::abs(value) < 0x1p53) return static_cast<std::int64_t>(value);
  return rounded(value, 6);
}

std::optional<double> number(const Json& value) {
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

std::string plain_text(double value) {
  if (!std::isfinite(value)) return "no figure";
  const double shown = rounded(value, 3);
  if (std::abs(value) >= 1000) return with_commas(fmt::format("{:.0f}", value));
  if (shown == 0) return "0";
  if (std::abs(shown) < 1e-4) return fmt::format("{:.2e}", shown);
  const int before = static_cast<int>(std::floor(std::log10(std::abs(shown))));  // 0: one digit before the point
  std::string text = fmt::format("{:.{}f}", shown, std::max(0, 2 - before));
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

std::string seconds_text(double seconds) {
  static constexpr std::array<Unit, 4> kUnits = {{{1e-9, "ns"}, {1e-6, "µs"}, {1e-3, "ms"}, {1, "s"}}};
  return scaled_text(seconds, kUnits);
}

std::string bytes_text(double bytes) {
  static constexpr std::array<Unit, 5> kUnits = {{{1, "bytes"}, {1e3, "kB"}, {1e6, "MB"}, {1e9, "GB"}, {1e12, "TB"}}};
  return scaled_text(bytes, kUnits);
}

std::string flops_text(double operations) {
  static constexpr std::array<Unit, 5> kUnits = {
      {{1, "FLOP"}, {1e3, "kFLOP"}, {1e6, "MFLOP"}, {1e9, "GFLOP"}, {1e12, "TFLOP"}}};
  return scaled_text(operations, kUnits);
}

std::string flop_rate_text(double per_second) { return flops_text(per_second) + "/s"; }
std::string byte_rate_text(double per_second) { return bytes_text(per_second) + "/s"; }
std::string percent_text(double part) {
  return std::isfinite(part) ? fmt::format("{:.0f}%", 100 * part) : std::string("no figure");
}

std::string count_text(double count, const char* one, const char* many) {
  return with_commas(fmt::format("{:.0f}", count)) + " " + (count == 1 ? one : many);
}

bool is_about(double value, double base) { return std::abs(value / base - 1) <= kSame; }

std::string times_as(double value, double base, const char* adjective) {
  if (!(base > 0) || !std::isfinite(value)) return "a time that can't be compared";
  const double ratio = value / base;
  if (is_about(value, base)) return fmt::format("about as {}", adjective);
  return fmt::format("{} times as {}", plain_text(ratio), adjective);
}

std::string slope_text(double seconds) {
  if (seconds == 0) return "stays level";
  return fmt::format("{} by {}", seconds > 0 ? "rises" : "falls", seconds_text(std::abs(seconds)));
}

std::string r2_text(const std::optional<double>& r2) {
  return r2 ? fmt::format("explains {} of the variation (R² = {:.3f})", percent_text(*r2), *r2)
            : std::string("has nothing to explain, as the times don't vary");
}

}  // namespace backplane::lab
