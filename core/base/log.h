// Leveled log lines to stderr. Free-threaded.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace backplane {

enum class LogLevel : int { kTrace = 0, kDebug = 1, kInfo = 2, kWarning = 3, kError = 4, kOff = 5 };

// Lines below the level are dropped. The default is kWarning.
void set_log_level(LogLevel level);
LogLevel log_level();

// One line: "[level] component: text".
void log_line(LogLevel level, std::string_view component, std::string_view text);

template <class... Args>
void log(LogLevel level, std::string_view component, fmt::format_string<Args...> format, Args&&... args) {
  if (level >= log_level()) {
    log_line(level, component, fmt::format(format, std::forward<Args>(args)...));
  }
}

}  // namespace backplane
