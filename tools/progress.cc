#include "tools/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace backplane::tools {
namespace {

constexpr std::chrono::milliseconds kBetweenDraws{100};

unsigned terminal_width() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string format_bytes(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 999.95 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string progress_line(const std::string& label, std::uint64_t done, std::uint64_t total, ProgressUnit unit,
                          unsigned width) {
  const auto amount = [unit](std::uint64_t n) {
    return unit == ProgressUnit::kBytes ? format_bytes(n) : fmt::format("{}", n);
  };
  if (total == 0) return fmt::format("{}  {}", label, amount(done)).substr(0, width);
  done = std::min(done, total);
  const auto percent = static_cast<unsigned>(100.0 * static_cast<double>(done) / static_cast<double>(total));
  const std::string figures = fmt::format(" {:3}%  {} of {}", percent, amount(done), amount(total));
  std::string line = fmt::format("{}  ", label);
  if (line.size() + figures.size() + 12 <= width) {
    const std::size_t cells = std::min<std::size_t>(width - line.size() - figures.size() - 2, 40);
    const std::size_t full = cells * percent / 100;
    line += fmt::format("[{:#<{}}{:<{}}]", "", full, "", cells - full);
  }
  return (line + figures).substr(0, width);
}

bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

ProgressBar::ProgressBar(std::string label, bool enabled, ProgressUnit unit)
    : label_(std::move(label)), enabled_(enabled && stderr_is_terminal()), unit_(unit) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::update(std::uint64_t done, std::uint64_t total) {
  if (!enabled_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < kBetweenDraws) return;
  last_ = now;
  drawn_ = true;
  std::fputs(fmt::format("\r{}\x1b[K", progress_line(label_, done, total, unit_, terminal_width() - 1)).c_str(),
             stderr);
  std::fflush(stderr);
}

}  // namespace backplane::tools
