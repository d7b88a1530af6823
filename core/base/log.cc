#include "core/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>

namespace backplane {
namespace {

std::atomic<int> current_level{static_cast<int>(LogLevel::kWarning)};

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("backplane", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("[%^%l%$] %v");
    made->set_level(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

}  // namespace

void set_log_level(LogLevel level) { current_level = static_cast<int>(level); }
LogLevel log_level() { return static_cast<LogLevel>(current_level.load()); }

void log_line(LogLevel level, std::string_view component, std::string_view text) {
  if (level < log_level() || level == LogLevel::kOff) return;
  logger().log(static_cast<spdlog::level::level_enum>(level), "{}: {}", component, text);
}

}  // namespace backplane
