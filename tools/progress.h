// A progress bar on stderr, on terminals only.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace backplane::tools {

// "98.4 MB", "1.5 GB": decimal units, as disks and downloads count.
std::string format_bytes(std::uint64_t bytes);

enum class ProgressUnit { kBytes, kCount };

// One line of it, at most `width` columns wide, without the carriage return. total 0: unknown.
std::string progress_line(const std::string& label, std::uint64_t done, std::uint64_t total, ProgressUnit unit,
                          unsigned width);

// Erases itself when it goes away. Prints nothing where stderr is no terminal or `enabled` is false, or when all is
// done before anybody could read it.
class ProgressBar {
 public:
  ProgressBar(std::string label, bool enabled, ProgressUnit unit = ProgressUnit::kBytes);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  bool enabled() const { return enabled_; }
  void update(std::uint64_t done, std::uint64_t total);  // cheap: redraws ten times a second at most

 private:
  std::string label_;
  bool enabled_;
  ProgressUnit unit_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

bool stderr_is_terminal();

}  // namespace backplane::tools
