#include "tools/tuning/tuning.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/processors.h"
#include "tools/tuning/key.h"
#include "tools/tuning/trial.h"

namespace backplane::tuning {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double others_now() {
  std::ifstream stream("/proc/stat", std::ios::binary);
  const std::string stat{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return others_seconds(stat, static_cast<double>(::sysconf(_SC_CLK_TCK)),
                        seconds(usage.ru_utime) + seconds(usage.ru_stime));
}

// Changes with every build of a plugin, also where its author forgets the version.
std::string build_of(const std::filesystem::path& library) {
  std::error_code error;
  const auto size = std::filesystem::file_size(library, error);
  const auto time = std::filesystem::last_write_time(library, error).time_since_epoch().count();
  return error ? "" : fmt::format("{}-{}", size, time);
}

Tried try_settings(Trial& trial) {
  const double before = others_now(), start = seconds_now();
  const Choice choice = choose(
      trial.settings().size(), [&](std::size_t i) { return trial.measure(i); }, seconds_now);
  return {trial.settings()[choice.setting], choice.why, was_disturbed(others_now() - before, seconds_now() - start)};
}

// "2 threads, kernels=X"
std::string text_of(const Setting& setting) {
  std::string text =
      setting.threads != 0 ? fmt::format("{} thread{}", setting.threads, setting.threads == 1 ? "" : "s") : "";
  if (!setting.options.empty()) text += (text.empty() ? "" : ", ") + setting.options;
  return text.empty() ? "the default" : text;
}

// Why nothing is tried for these options; empty: something is.
std::string reason_not_to(const std::string& device, const tools::DeviceOptions& options) {
  const char* variable = std::getenv("BACKPLANE_NO_TUNE");
  if (options.no_tune) return "--no-tune";
  if (variable && *variable) return "BACKPLANE_NO_TUNE is set";
  if (options.threads) return "--threads says what to use";
  const bool several = options.prefill_device || options.decode_device || options.failover || options.shadow;
  if (several || device.find_first_of(",=") != std::string::npos) return "several devices are used";
  return "";
}

}  // namespace

double others_seconds(const std::string& stat, double ticks, double own_seconds) {
  // "cpu user nice system idle iowait irq softirq steal guest ...": guests are in `user` already.
  std::istringstream line(stat.substr(0, stat.find('\n')));
  std::string name;
  line >> name;
  double busy = 0, value = 0;
  for (int i = 0; i < 8 && line >> value; ++i) {
    if (i != 3 && i != 4) busy += value;
  }
  return busy / std::max(1.0, ticks) - own_seconds;
}

bool was_disturbed(double others, double elapsed) {
  constexpr double kProcessor = 0.2;  // of one: the file counts in steps of 10 ms
  return others > kProcessor * elapsed;
}

bool is_possible(const Setting& setting, const std::vector<std::string>& options, unsigned processors) {
  const bool known =
      setting.options.empty() || std::find(options.begin(), options.end(), setting.options) != options.end();
  return known && setting.threads <= processors;
}

Tuned remembered_or_tried(const Store& store, const std::string& key, const std::string& build,
                          const std::function<bool(const Setting&)>& possible, const std::function<Tried()>& trial) {
  std::optional<Entry> found = store.find(key);
  if (found && (found->build != build || !possible(found->setting))) found.reset();
  const std::uint32_t before = found ? found->disturbed : 0;
  if (found && (before == 0 || before >= kMostDisturbed)) {
    return {found->setting, "remembered: " + found->why};
  }
  if (!store.writable()) return {{}, "there is no place to remember what was tried"};
  const Tried tried = trial();
  Entry entry{.key = key, .build = build, .setting = tried.setting, .why = tried.why};
  if (tried.disturbed) {
    entry.setting = {};
    entry.why = "others used the processors while settings were tried";
    entry.disturbed = before + 1;
  }
  store.keep(entry);
  return {entry.setting, (tried.disturbed ? "" : "tried: ") + entry.why};
}

Tuned tune(const plugins::Registry& registry, const std::string& device, const tools::DeviceOptions& options,
           const models::ModelFile& file, const models::LoadOptions& load) {
  const auto keep_default = [&](const std::string& why) {
    return Tuned{{}, fmt::format("{} ({})", text_of({options.threads.value_or(0), ""}), why)};
  };
  if (const std::string reason = reason_not_to(device, options); !reason.empty()) return keep_default(reason);
  const plugins::DeviceRef ref = registry.find_device(device);
  const auto found = std::find_if(registry.plugins().begin(), registry.plugins().end(),
                                  [&](const auto& each) { return each.name == ref.plugin->name(); });
  if (found == registry.plugins().end() || found->tune.empty()) {
    return keep_default("the plugin has nothing to try");
  }
  const std::optional<std::filesystem::path> path = store_path();
  if (!path) return keep_default("there is no place to remember what was tried");
  const Place place{processor_name(), usable_processors(), ref.name, ref.plugin->version()};
  try {
    const auto possible = [&](const Setting& setting) { return is_possible(setting, found->tune, place.processors); };
    const auto trial = [&]() -> Tried {
      Trial opened(registry, ref, found->tune, file, load);
      return try_settings(opened);
    };
    Tuned tuned = remembered_or_tried(Store(*path), key_of(place, file), build_of(ref.plugin->path()), possible, trial);
    tuned.why = text_of(tuned.setting) + " (" + tuned.why + ")";
    return tuned;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInterrupted) throw;
    return keep_default(fmt::format("trying failed: {}", error.what()));  // the load itself will tell what is wrong
  }
}

}  // namespace backplane::tuning
