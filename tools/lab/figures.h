// Measured numbers: as the report keeps them, and as people read them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace backplane::lab {

using Json = nlohmann::ordered_json;

// As it goes into the report: six significant digits, whole numbers exactly, null for what is no number. Text, plots
// and tables are made from the report's values only, so that all of them agree.
Json figure(double value);
// A figure of the report; nothing for null.
std::optional<double> number(const Json& value);

// Three significant digits and a unit; "no figure" for what isn't finite.
std::string seconds_text(double seconds);                                 // "38.2 ms"
std::string bytes_text(double bytes);                                     // "46.1 kB"
std::string flops_text(double operations);                                // "212 MFLOP": floating-point operations
std::string flop_rate_text(double per_second);                            // "8.3 GFLOP/s"
std::string byte_rate_text(double per_second);                            // "1.1 GB/s"
std::string plain_text(double value);                                     // "1,234", "12.5", "0.031"
std::string percent_text(double part);                                    // 0.54: "54%"
std::string count_text(double count, const char* one, const char* many);  // "1 token", "1,234 tokens"

// Whether two measurements differ by too little to call one of them more.
bool is_about(double value, double base);
// How `value` compares with `base`, after "took": "3.2 times as long", "about as long". `adjective`: "long", "many".
std::string times_as(double value, double base, const char* adjective);
// "rises by 31 µs", "falls by 2 ms" or "stays the same", after "the line".
std::string slope_text(double seconds);
// "explains 98% of the variation"; where nothing varies, says that.
std::string r2_text(const std::optional<double>& r2);

}  // namespace backplane::lab
