// Renders JSON lines {"template": ..., "variables": {...}} from stdin to JSON lines {"text": ...} or
// {"error": ..., "line": ...}: the other side of compare_with_jinja2.py, run by hand.
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "core/text/jinja/chat_template.h"

namespace jinja = backplane::text::jinja;

int main() {
  jinja::RenderOptions options;
  options.clock = [] {
    std::tm date{};  // Friday, 26 July 2024
    date.tm_year = 124, date.tm_mon = 6, date.tm_mday = 26, date.tm_wday = 5, date.tm_yday = 207;
    return date;
  };
  std::string line;
  while (std::getline(std::cin, line)) {
    auto request = nlohmann::ordered_json::parse(line);
    nlohmann::ordered_json reply;
    try {
      jinja::ChatTemplate parsed(request["template"].get<std::string>());
      reply["text"] = parsed.render(request["variables"], options);
    } catch (const jinja::TemplateError& error) {
      reply = {{"error", error.message()}, {"line", error.line()}};
    }
    std::cout << reply.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
  }
}
