// The conformance suite: what every plugin must do, tried on one device and judged by cpu:f64 through the same ABI.
// Part of the program, so that an installed Backplane can try a plugin without the source tree.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/device/device.h"

namespace backplane::conformance {

enum class Verdict { kPassed, kFailed, kSkipped };

struct Result {
  std::string name;  // "LINEAR/Q4_K/canonical/F32/T5_N7_C256"; what comes before the first slash is the op or the table
  Verdict verdict = Verdict::kPassed;
  std::string text;  // why it failed, or the plugin's reason for what was skipped
  double error = 0;  // largest E: distance from the oracle over what the declared arithmetic allows; 0: none measured
  double seconds = 0;
};

// Up to here an error is rounding; from kBug on the case fails. What lies between is passed and marked as suspect.
inline constexpr double kRounding = 1, kBug = 4;
inline bool is_suspect(const Result& result) { return result.verdict == Verdict::kPassed && result.error > kRounding; }

struct Target {
  device::PluginRef plugin;
  std::uint32_t index = 0;
  std::string options;         // for open: "key=value,..."
  bool deterministic = false;  // opened with BP_OPEN_DETERMINISTIC

  std::shared_ptr<device::Device> open() const { return device::Device::open(plugin, index, deterministic, options); }
};

struct Options {
  std::string filter;      // the name of one case, or part of names, where * stands for anything; empty: all
  std::uint64_t seed = 1;  // each case draws from its own generator, seeded by this and its name
  std::function<void(const std::string& name)> on_start;
  std::function<void(const Result&)> on_result;
};

struct Summary {
  std::string device;  // "cuda:0"
  std::string description;
  std::uint64_t seed = 0;
  std::vector<Result> results;

  std::uint64_t count(Verdict verdict) const;
  // Something failed, or nothing was tried: a suite without a case proves nothing.
  bool failed() const;
};

// Throws Error when a device can't be opened, or the suite itself is broken (the oracle fails).
Summary run(const Target& subject, const Target& oracle, const Options& options);
// Names of the cases that `run` would try, in order.
std::vector<std::string> list(const Target& subject, const Options& options);

// As one argument for the shell, quoted where it needs to be.
std::string shell_word(const std::string& text);
// `replay` is the command that tries a case again up to its --filter: "backplane conform cuda:0".
std::string replay_command(const std::string& replay, const std::string& name, std::uint64_t seed);
std::string json_report(const Summary& summary, const std::string& replay);
std::string junit_report(const Summary& summary, const std::string& replay);

}  // namespace backplane::conformance
