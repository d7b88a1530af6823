// Everything that a command which computes has open: the file, its tokenizer, the devices, the model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/formats/tokenizer_bundle.h"
#include "models/load.h"
#include "models/shadow_model.h"
#include "plugins/host/registry.h"
#include "tools/options.h"
#include "tools/runtime.h"

namespace backplane::tools {

// A model file and its tokenizer; no device yet.
struct OpenedModel {
  models::ModelFile file;
  std::optional<formats::TokenizerBundle> tokenizer;  // a model need not have one

  // Throws Error{kBadFile} when there is none.
  const formats::TokenizerBundle& need_tokenizer() const;
  std::shared_ptr<const text::Tokenizer> tokenizer_or_null() const;
  // The tokens by which the model ends its text, as tokenizer or folder say.
  std::vector<TokenId> end_ids() const;
  // The context when the user asks for none and `tokens` are wanted: no more than the model is made for, unless
  // `beyond` lets a longer one through where that works.
  std::uint32_t context_for(std::uint64_t tokens, bool beyond) const;
};

// `name` as resolve_model takes it. Throws Error{kBadFile} for a tokenizer that is broken or not supported, too.
OpenedModel open_model(const std::string& name, const DeviceOptions& options);

// How much KV cache there is.
enum class KvSize : std::uint8_t {
  kAsAsked,   // as the options of the load say
  kWhatFits,  // where they say nothing, no more than leaves memory for others: nine tenths of what a device of its own
              // has free, half of what the host has
};

// Of --shadow.
struct Shadow {
  std::string device;
  double rate = 0;
  std::shared_ptr<models::ShadowRecord> record;
};

struct LoadedModel {
  PhaseDevices devices;  // outlive the model
  std::unique_ptr<models::LoadedModel> model;
  std::optional<Shadow> shadow;
  bool loaded_elsewhere = false;  // on the failover device, since the others were lost while loading
  models::MemoryEstimate memory;
  std::uint32_t context = 0;
  std::uint64_t kv_tokens = 0;  // that all sequences together may have in the cache
  double seconds = 0;           // from the start of the load

  std::string device() const { return devices.name(); }  // where it began, or was to begin
  std::string device_now() const;                        // after a failover, where it went on
  // Whether it can compute no more: a device is lost, and no other goes on in its place. On the thread that uses the
  // model.
  bool lost() const;
};

// Opens the devices, by a setting that suits them (tools/tuning), and loads. Says first, on a terminal or with
// --verbose, what memory it will take; shows a progress bar; ends with Error{kInterrupted} when SIGINT comes inside a
// CatchInterrupts. `load.context` 0: as --ctx says, else the model's own. Throws as models::load.
LoadedModel load_model(const OpenedModel& opened, const DeviceOptions& options, models::LoadOptions load,
                       KvSize size = KvSize::kAsAsked);

// For --verbose, on stderr: a line for each entry of the model's ledger, and what its shadow found.
void print_ledger(LoadedModel& loaded);

}  // namespace backplane::tools
