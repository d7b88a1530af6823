// A progress bar on stderr, on terminals only.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace backplane::tools {

// "98.4 MB", "1.5 GB": decimal units, as disks and downloads count.
std::string format_bytes(std::uint64_t bytes);

// One line of it, `width` columns wide, without the carriage return. total 0: unknown.
std::string progress_line(const std::string& label, std::uint64_t done, std::uint64_t total, unsigned width);

// Erases itself when it goes away. Prints nothing where stderr is no terminal or `enabled` is false.
class ProgressBar {
 public:
  ProgressBar(std::string label, bool enabled);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(std::uint64_t done, std::uint64_t total);  // cheap: redraws ten times a second at most

 private:
  std::string label_;
  bool enabled_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_{};
};

bool stderr_is_terminal();

}  // namespace backplane::tools
