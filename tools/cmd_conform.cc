// backplane conform: tries everything that the ABI asks of a plugin on one of its devices.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>

#include "core/base/error.h"
#include "plugins/host/registry.h"
#include "tests/conformance/conformance.h"
#include "tools/commands.h"
#include "tools/json_lines.h"
#include "tools/options.h"

namespace backplane::tools {
namespace {

constexpr const char* kOracle = "cpu:f64";

struct ConformOptions {
  PluginOptions plugins;
  std::string target;
  std::optional<std::string> device;
  std::string filter, options, json, junit;
  std::uint64_t seed = 1;
  bool deterministic = false, list = false, verbose = false;
};

// A plugin that crashes takes the program with it; at least say where. Only what a signal handler may touch.
std::array<char, 1024> g_crash_text;

void say_where_it_crashed(int signal) {
  std::size_t length = 0;
  while (length < g_crash_text.size() && g_crash_text[length] != 0) ++length;
  if (::write(STDERR_FILENO, g_crash_text.data(), length) < 0) ::_exit(128 + signal);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void watch_for_crashes() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) std::signal(signal, say_where_it_crashed);
}

conformance::Target target_of(const plugins::DeviceRef& ref, const std::string& options = {},
                              bool deterministic = false) {
  return {{&ref.plugin->tables(), ref.plugin->name()}, ref.index, options, deterministic};
}

bool is_file(const std::string& target) {
  std::error_code error;
  return std::filesystem::exists(target, error);
}

struct Found {
  plugins::DeviceRef subject, oracle;
};

// TARGET is the name of a device, or a library (manifest, folder) that may lie anywhere.
Found find(const ConformOptions& options) {
  PluginOptions search = options.plugins;
  const bool file = is_file(options.target);
  if (!file && options.target.find('/') != std::string::npos) {
    throw Error(ErrorCode::kUsage, "there is no such file", options.target,
                "give a plugin's library or a device's name");
  }
  if (file) search.plugins.insert(search.plugins.begin(), options.target);
  const plugins::Registry registry(search.search());
  std::string name = options.target;
  if (file) {
    const plugins::FoundPlugin& first = registry.plugins().front();
    name = first.name;
    if (options.device)
      name = options.device->find(':') == std::string::npos ? name + ":" + *options.device : *options.device;
  } else if (options.device) {
    throw Error(ErrorCode::kUsage, "give --device with a plugin's file only", options.target,
                "leave out --device, or give the plugin's library");
  }
  return {registry.find_device(name), registry.find_device(kOracle)};
}

std::string replay_of(const ConformOptions& options) {
  std::string command = "backplane conform " + conformance::shell_word(options.target);
  const auto add = [&](const char* name, const std::string& value) {
    command += fmt::format(" {} {}", name, conformance::shell_word(value));
  };
  if (options.device) add("--device", *options.device);
  for (const std::string& plugin : options.plugins.plugins) add("--plugin", plugin);
  if (!options.options.empty()) add("--options", options.options);
  if (options.deterministic) command += " --deterministic";
  return command;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) throw Error(ErrorCode::kUsage, "can't write the report", path);
}

void print_result(Output& out, const conformance::Result& result, const ConformOptions& options) {
  using conformance::Verdict;
  if (result.verdict == Verdict::kFailed) {
    out << fmt::format("FAILED  {}\n        {}\n        seed {}; again: {}\n", result.name, result.text, options.seed,
                       conformance::replay_command(replay_of(options), result.name, options.seed));
  } else if (conformance::is_suspect(result)) {
    out << fmt::format("suspect {}: E = {:.3g}, more than rounding and less than a fault\n", result.name, result.error);
  } else if (options.verbose && result.verdict == Verdict::kSkipped) {
    out << fmt::format("skipped {}: {}\n", result.name, result.text);
  } else if (options.verbose) {
    out << fmt::format("passed  {} (E = {:.3g}, {:.3f} s)\n", result.name, result.error, result.seconds);
  }
  out.flush();
}

int list_cases(const ConformOptions& options, const Found& found) {
  conformance::Options selection;
  selection.filter = options.filter;
  Output out;
  for (const std::string& name :
       conformance::list(target_of(found.subject, options.options, options.deterministic), selection)) {
    out << name << '\n';
  }
  out.flush();
  return 0;
}

int conform(const ConformOptions& options) {
  const Found found = find(options);
  if (options.list) return list_cases(options, found);
  Output out;
  conformance::Options running;
  running.filter = options.filter;
  running.seed = options.seed;
  const std::string replay = replay_of(options);
  bool begun = false;  // only once the devices are open is there more to print than an error
  running.on_start = [&](const std::string& name) {
    if (!std::exchange(begun, true)) {
      out << fmt::format("{} against {}, seed {}\n", found.subject.name, found.oracle.name, options.seed);
      out.flush();
    }
    const std::string text = fmt::format("\nbackplane: the plugin crashed in {}: again: {}\n", name,
                                         conformance::replay_command(replay, name, options.seed));
    g_crash_text.fill(0);
    text.copy(g_crash_text.data(), g_crash_text.size() - 1);
  };
  running.on_result = [&](const conformance::Result& result) { print_result(out, result, options); };
  watch_for_crashes();
  const conformance::Summary summary = conformance::run(
      target_of(found.subject, options.options, options.deterministic), target_of(found.oracle), running);
  if (!options.json.empty()) write_file(options.json, conformance::json_report(summary, replay));
  if (!options.junit.empty()) write_file(options.junit, conformance::junit_report(summary, replay));
  using conformance::Verdict;
  if (summary.results.empty()) {
    out << fmt::format("No case has '{}' in its name: `--list` shows them.\n", options.filter);
  } else if (summary.count(Verdict::kPassed) == 0) {
    out << "No case was executed to its end: that proves nothing.\n";
  }
  out << fmt::format("{} passed, {} failed, {} skipped\n", summary.count(Verdict::kPassed),
                     summary.count(Verdict::kFailed), summary.count(Verdict::kSkipped));
  out.flush();
  return summary.failed() ? static_cast<int>(ErrorCode::kCheckFailed) : 0;
}

}  // namespace

void add_conform(CommandLine& line) {
  auto options = std::make_shared<ConformOptions>();
  Command command =
      line.command("conform", "Try on a plugin's device everything that the plugin ABI asks for, against cpu:f64");
  command
      .option("target", options->target, "PLUGIN|DEVICE",
              "A plugin's library, or the name of a device, such as cpu:f32 (see `backplane devices`)")
      .required("target");
  command.option("-d,--device", options->device, "DEVICE", "Which device of the library: its name, or PLUGIN:NAME");
  command.option("--filter", options->filter, "TEXT",
                 "Only the case of this name, or those with the text in their name; * stands for anything");
  command.option("--seed", options->seed, "N", "Where random inputs start (default: 1)");
  command.option("--options", options->options, "KEY=VALUE,...", "Passed to the plugin when the device is opened");
  command.flag("--deterministic", options->deterministic,
               "Open the device so that a token's results don't depend on what else is computed with it");
  command.option("--json", options->json, "FILE", "Write a report with every case");
  command.option("--junit", options->junit, "FILE", "Write a report as CI systems read it");
  command.flag("--list", options->list, "Only print the names of the cases");
  command.flag("-v,--verbose", options->verbose, "Also tell what passed, and why the rest was skipped");
  add_options(command, options->plugins);
  command.example("backplane conform build/backplane_my_npu.so --filter LINEAR").action([options] {
    return conform(*options);
  });
}

}  // namespace backplane::tools
