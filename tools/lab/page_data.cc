#include "tools/lab/page_data.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/lab/chart.h"

namespace backplane::lab {
namespace {

constexpr std::string_view kNoBreak = "\u00a0";

std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null() || (value.is_array() && value.empty())) return "none";
  if (value.is_array()) {
    std::string out;
    for (const Json& each : value) out += (out.empty() ? "" : ", ") + text_of(each);
    return out;
  }
  if (value.is_object()) {
    std::string out;
    for (const auto& [key, each] : value.items()) out += (out.empty() ? "" : ", ") + key + " " + text_of(each);
    return out;
  }
  return value.dump();
}

bool is_table(const Json& value) { return value.is_array() && !value.empty() && value.front().is_object(); }

std::string rows_html(const std::string& name, const Json& rows) {
  std::string out = fmt::format("<h4>{}</h4>\n<div class=\"scroll\"><table class=\"data\">\n<tr>", escaped(name));
  for (const auto& [key, value] : rows.front().items()) out += "<th>" + escaped(key) + "</th>";
  out += "</tr>\n";
  for (const Json& row : rows) {
    out += "<tr>";
    for (const auto& [key, value] : row.items()) out += "<td>" + escaped(text_of(value)) + "</td>";
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

// Single values become rows of one table, lists of objects tables of their own behind it.
void collect(const std::string& prefix, const Json& object, std::string& single, std::string& tables) {
  for (const auto& [key, value] : object.items()) {
    if (key == "findings") continue;
    const std::string name = prefix.empty() ? key : prefix + "." + key;
    if (value.is_object()) {
      collect(name, value, single, tables);
    } else if (is_table(value)) {
      tables += rows_html(name, value);
    } else {
      single += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", escaped(name), escaped(text_of(value)));
    }
  }
}

// A number and its unit stay on one line: the space between them becomes one that doesn't break.
std::string unbroken(std::string_view text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto unit = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c & 0x80) != 0; };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool between = text[i] == ' ' && i > 0 && i + 1 < text.size() && digit(text[i - 1]) && unit(text[i + 1]);
    out += between ? kNoBreak : text.substr(i, 1);
  }
  return out;
}

}  // namespace

std::string prose(std::string_view source) {
  const std::string whole = unbroken(source);
  std::string_view text = whole;
  std::string out;
  while (true) {
    const std::size_t open = text.find('`');
    const std::size_t close = open == text.npos ? text.npos : text.find('`', open + 1);
    if (close == text.npos) return out + escaped(text);
    out += escaped(text.substr(0, open)) + "<code>" + escaped(text.substr(open + 1, close - open - 1)) + "</code>";
    text.remove_prefix(close + 1);
  }
}

std::string data_html(const Json& object) {
  std::string single, tables;
  collect({}, object, single, tables);
  if (!single.empty()) single = "<div class=\"scroll\"><table class=\"data\">\n" + single + "</table></div>\n";
  return single + tables;
}

}  // namespace backplane::lab
