// Options that several subcommands share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/device/ledger.h"
#include "plugins/host/search_path.h"
#include "tools/command_line.h"

namespace backplane::tools {

struct PluginOptions {
  std::vector<std::string> plugins;  // --plugin

  plugins::SearchOptions search() const;
};
void add_options(Command& command, PluginOptions& options);

// Of commands that compute on a device.
struct DeviceOptions {
  PluginOptions plugins;
  std::optional<std::string> device;          // one, or several with commas: A=LAYERS,B
  std::optional<std::string> prefill_device;  // where prompts are computed, if elsewhere
  std::optional<std::string> decode_device;   // where replies are
  std::optional<std::string> failover;        // where to go on when a device is lost
  std::optional<std::string> shadow;          // where sampled steps are run again
  std::optional<double> shadow_rate;          // of steps
  std::string fallback = "warn";
  std::optional<std::uint32_t> threads;
  std::optional<std::uint32_t> context;
  std::string kv_type;
  bool deterministic = false;
  bool no_tune = false;
  bool verbose = false;
  bool no_progress = false;

  device::FallbackPolicy policy() const;
  // Of --shadow-rate, or its default. Throws Error{kUsage} where it is no rate, where there is no shadow to have it,
  // and for a shadow beside options that can't be had with it.
  double checked_shadow_rate() const;
  // Throws Error{kUsage} for a type that a KV cache can't have; kNone: the device chooses.
  DType kv() const;
};
void add_options(Command& command, DeviceOptions& options);

}  // namespace backplane::tools
