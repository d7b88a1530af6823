// The lab's page taken apart: what its tables say and where its plots have their marks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace backplane::test {

using Texts = std::vector<std::string>;
using Points = std::vector<std::pair<double, double>>;

// What stands between `open` and the next `close`, wherever it does.
inline Texts all_between(const std::string& text, const std::string& open, const std::string& close) {
  Texts out;
  for (std::size_t at = text.find(open); at != text.npos; at = text.find(open, at)) {
    at += open.size();
    const std::size_t end = text.find(close, at);
    out.push_back(text.substr(at, end - at));
  }
  return out;
}

inline std::string unescaped(std::string text) {
  for (const auto& [entity, character] :
       {std::pair{"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}}) {
    for (std::size_t at; (at = text.find(entity)) != text.npos;)
      text.replace(at, std::string(entity).size(), character);
  }
  return text;
}

// The tables of all figures: "a.b" and "list[3].c" with what is shown for them.
inline std::map<std::string, std::string> shown_figures(const std::string& section) {
  std::map<std::string, std::string> out;
  std::size_t before = 0;
  const std::string open = "<table class=\"data\">";
  for (std::size_t at = section.find(open); at != section.npos; at = section.find(open, at + 1)) {
    const std::size_t end = section.find("</table>", at);
    const Texts rows = all_between(section.substr(at, end - at), "<tr>", "</tr>");
    const Texts names = all_between(section.substr(before, at - before), "<h4>", "</h4>");
    before = end;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Texts cells = all_between(rows[i], "<td>", "</td>");
      const Texts heads = all_between(rows[names.empty() ? i : 0], "<th>", "</th>");
      for (std::size_t j = 0; j < cells.size(); ++j) {
        const std::string list = names.empty() ? "" : names.back() + "[" + std::to_string(i - 1) + "].";
        out[list + unescaped(heads.at(j))] = unescaped(cells[j]);
      }
    }
  }
  return out;
}

// "12.9 s", "1,079", "24%" in seconds, bytes, FLOP or as it is; NaN for what is none of these.
inline double shown_value(std::string text) {
  std::erase(text, ',');
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  std::string unit = end;
  if (unit.starts_with(' ')) unit.erase(0, 1);
  if (unit.ends_with("/s")) unit.erase(unit.size() - 2);
  static const std::map<std::string, double> kUnits = {
      {"", 1},     {"%", 0.01}, {"ns", 1e-9}, {"µs", 1e-6},   {"ms", 1e-3},   {"s", 1},       {"bytes", 1}, {"kB", 1e3},
      {"MB", 1e6}, {"GB", 1e9}, {"FLOP", 1},  {"kFLOP", 1e3}, {"MFLOP", 1e6}, {"GFLOP", 1e9}, {"tokens", 1}};
  const auto factor = kUnits.find(unit);
  return end == text.c_str() || factor == kUnits.end() ? std::nan("") : value * factor->second;
}

// The table of the main figures, without its headers.
inline std::vector<Texts> shown_table(const std::string& section) {
  const Texts tables = all_between(section, "<table>", "</table>");
  std::vector<Texts> rows;
  if (tables.size() != 1) return rows;
  for (const std::string& row : all_between(tables[0], "<tr>", "</tr>")) {
    if (const Texts cells = all_between(row, "<td>", "</td>"); !cells.empty()) rows.push_back(cells);
  }
  return rows;
}

inline double attribute(const std::string& element, const std::string& name) {
  const Texts values = all_between(element, " " + name + "=\"", "\"");
  return values.empty() ? std::nan("") : std::strtod(values[0].c_str(), nullptr);
}

// An axis by its labels: pixels of the first and the last tick, and their values.
struct Axis {
  double pixel[2] = {0, 0}, value[2] = {0, 0};
  bool log = false;

  double at(double wanted) const {
    const auto scale = [&](double v) { return log ? std::log2(v) : v; };
    const double part = (scale(wanted) - scale(value[0])) / (scale(value[1]) - scale(value[0]));
    return pixel[0] + part * (pixel[1] - pixel[0]);
  }
};

// The labels with an anchor, in order; those that name an axis are left out.
inline Axis axis_of(const std::string& svg, const std::string& anchor, const std::string& coordinate, double shift) {
  Axis axis;
  std::size_t count = 0;
  for (const std::string& text : all_between(svg, "<text", "</text>")) {
    if (text.find("\"" + anchor + "\"") == text.npos || text.find("class=") != text.npos) continue;
    const std::size_t which = count++ == 0 ? 0 : 1;
    axis.pixel[which] = attribute(text, coordinate) + shift;
    axis.value[which] = shown_value(text.substr(text.find('>') + 1));
  }
  return axis;
}

inline Points dots_of(const std::string& svg) {
  Points out;
  for (const std::string& dot : all_between(svg, "<circle", ">")) {
    out.emplace_back(attribute(dot, "cx"), attribute(dot, "cy"));
  }
  return out;
}

// The points of each line that is drawn as steps: every second corner.
inline std::vector<Points> steps_of(const std::string& svg) {
  std::vector<Points> out;
  for (const std::string& path : all_between(svg, "<path class=\"steps", "/>")) {
    Points points;
    std::string corners = all_between(path, " d=\"M", "\"").at(0);
    std::replace(corners.begin(), corners.end(), 'L', ' ');
    const char* at = corners.c_str();
    for (char* next = nullptr;; at = next) {
      const double x = std::strtod(at, &next);
      if (next == at) break;
      at = next;
      points.emplace_back(x, std::strtod(at, &next));
    }
    Points& kept = out.emplace_back();
    for (std::size_t i = 0; i < points.size(); i += 2) kept.push_back(points[i]);
  }
  return out;
}

}  // namespace backplane::test
