// The report as text for a terminal.
#include <fmt/format.h>

#include <algorithm>

#include "tools/lab/page.h"
#include "tools/lab/sections.h"

namespace backplane::lab {
namespace {

constexpr std::size_t kColumns = 100;

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// The first line begins with `first`, all others with as many spaces.
std::string wrapped(std::string_view text, const std::string& first) {
  std::string out = first, line;
  const std::string indent(first.size(), ' ');
  std::size_t used = first.size();
  bool fresh = true;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (!fresh && used + 1 + width_of(word) > kColumns) {
      out += "\n" + indent;
      used = indent.size();
      fresh = true;
    }
    if (!fresh) out += ' ';
    out += word;
    used += width_of(word) + (fresh ? 0 : 1);
    fresh = false;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out + "\n";
}

std::string table_text(const Table& table) {
  std::vector<std::size_t> widths;
  for (const auto& row : table) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string out;
  for (const auto& row : table) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string gap(widths[i] - width_of(row[i]), ' ');
      line += i == 0 ? "  " + row[i] + gap : "   " + gap + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace

std::string lab_text(const Json& report) {
  std::string out =
      fmt::format("{} on {}\n", report["model"]["name"].get<std::string>(), report["device"].get<std::string>());
  std::size_t number = 0;
  for (const Section& section : sections(report)) {
    out += fmt::format("\n{}. {}\n\n", ++number, section.title);
    if (!section.skipped.empty()) {
      out += wrapped("not measured: " + section.skipped, "  ");
      continue;
    }
    out += table_text(section.table) + "\n";
    for (const std::string& finding : section.findings) out += wrapped(finding, "  - ");
  }
  return out;
}

}  // namespace backplane::lab
