#include "tools/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/base/error.h"

namespace backplane::tools {
namespace {

constexpr double kShadowRate = 0.01;

}  // namespace

plugins::SearchOptions PluginOptions::search() const {
  return plugins::default_search({plugins.begin(), plugins.end()});
}

void add_options(Command& command, PluginOptions& options) {
  command.list("--plugin", options.plugins, "PATH",
               "A plugin (library, manifest or folder of them) to use beside those that are found; may be repeated. "
               "Plugins are code that runs with your rights");
}

device::FallbackPolicy DeviceOptions::policy() const {
  if (fallback == "deny") return device::FallbackPolicy::kDeny;
  return fallback == "allow" ? device::FallbackPolicy::kAllow : device::FallbackPolicy::kWarn;
}

double DeviceOptions::checked_shadow_rate() const {
  const auto refuse = [](std::string_view what, const std::string& where, std::string_view todo) {
    throw Error(ErrorCode::kUsage, what, where, todo);
  };
  const double rate = shadow_rate.value_or(kShadowRate);
  if (!(rate > 0 && rate <= 1)) {
    refuse("not a part of the steps", fmt::format("--shadow-rate {}", rate), "give a number above 0, at most 1");
  }
  if (shadow_rate && !shadow) refuse("there is no shadow", "--shadow-rate", "name its device with --shadow");
  if (shadow && (prefill_device || decode_device)) {
    refuse("steps that are split between devices can't be run again elsewhere", "--shadow",
           "leave out --prefill-device and --decode-device");
  }
  return rate;
}

DType DeviceOptions::kv() const {
  if (kv_type.empty()) return DType::kNone;
  std::string name = kv_type;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  const auto type = dtype_from_name(name);
  if (!type || (!is_float(*type) && *type != DType::kF8E4M3 && *type != DType::kQ8_0)) {
    throw Error(ErrorCode::kUsage, "a KV cache can't have this type", "--kv-type " + kv_type,
                "give one of f16, bf16, f32, f64, f8_e4m3, q8_0");
  }
  return *type;
}

void add_options(Command& command, DeviceOptions& options) {
  command.option(
      "-d,--device", options.device, "DEVICE",
      "Where to compute, such as cpu:f32 (see `backplane devices`); by default the best that is available. Of "
      "several with commas, each takes the layers that the ones before have no room for, or as many as "
      "DEVICE=LAYERS says");
  command.option("--prefill-device", options.prefill_device, "DEVICE", "Where to compute prompts, if not on --device");
  command.option("--decode-device", options.decode_device, "DEVICE",
                 "Where to compute replies, if not on --device; the KV cache moves over");
  command.option(
      "--failover", options.failover, "DEVICE",
      "Where to go on when a device is lost after it was opened: what was under way is computed again there. "
      "Takes no memory before");
  command.option(
      "--shadow", options.shadow, "DEVICE",
      "Where to run some steps again, with the answers still those of --device: where the best tokens differ, "
      "the op that differs most is looked for. Takes the memory of the model once more, which has to be there; a "
      "shadow that fails later is dropped and harms no answer");
  command.option("--shadow-rate", options.shadow_rate, "R",
                 "The part of the steps that --shadow runs again, above 0, at most 1: every one; default 0.01");
  command.choice("--fallback", options.fallback, {"deny", "warn", "allow"},
                 "When the device lacks an op: refuse the model, warn and compute it on the cpu (default), or just do "
                 "that");
  command.option("--threads", options.threads, "N",
                 "CPU threads (default: one for each processor, or fewer where a trial showed that to be faster)");
  command.option("-c,--ctx", options.context, "TOKENS",
                 "Tokens of context to make room for (default: what the request needs, at most the model's own)");
  command.option("--kv-type", options.kv_type, "TYPE",
                 "Type of the KV cache: f16, bf16, f32, f64, f8_e4m3, q8_0; default that of the activations");
  command.flag("--deterministic", options.deterministic,
               "Results of a request don't depend on what else is computed at the same time, where the device can "
               "promise that only at the cost of speed; the CPU devices always do");
  add_options(command, options.plugins);
  command.flag(
      "--no-tune", options.no_tune,
      "Use the defaults of threads and kernels, without trying which are the fastest for a model of this shape, "
      "once, and without what was remembered of that");
  command.flag("-v,--verbose", options.verbose, "Say more on stderr: memory, timings, ops that fell back");
  command.flag("--no-progress", options.no_progress, "No progress bars");
}

}  // namespace backplane::tools
