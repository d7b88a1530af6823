// The report as text for a terminal.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tools/lab/page.h"
#include "tools/lab/sections.h"
#include "tools/text_table.h"

namespace backplane::lab {
namespace {

constexpr std::size_t kColumns = 100;

// The first line begins with `first`, all others with as many spaces.
std::string wrapped(std::string_view text, const std::string& first) {
  std::string out = first, line;
  const std::string indent(first.size(), ' ');
  std::size_t used = first.size();
  bool fresh = true;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (!fresh && used + 1 + tools::text_width(word) > kColumns) {
      out += "\n" + indent;
      used = indent.size();
      fresh = true;
    }
    if (!fresh) out += ' ';
    out += word;
    used += tools::text_width(word) + (fresh ? 0 : 1);
    fresh = false;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out + "\n";
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
    out += tools::table_text(section.table) + "\n";
    for (const std::string& finding : section.findings) out += wrapped(finding, "  - ");
  }
  return out;
}

}  // namespace backplane::lab
