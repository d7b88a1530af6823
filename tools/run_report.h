// What `run` says about a generation: the JSON object for scripts, the figures for people.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "core/engine/generation.h"
#include "tools/loaded_model.h"

namespace backplane::tools {

struct RunReport {
  const engine::Generation& generation;
  LoadedModel& loaded;
  std::shared_ptr<const text::Tokenizer> tokenizer;  // null: text is null
  const std::vector<TokenId>& prompt_ids;
  std::uint64_t seed = 0;
  bool steps = false;  // --top-logprobs
};

// device, prompt_ids, ids, text, finish_reason, timings, fallbacks, and with `steps` steps; with error, error.
nlohmann::ordered_json report_json(const RunReport& report);
// Timings and the ledger, on stderr.
void print_summary(const RunReport& report);

// The error that a generation ended with: its own, or that it was interrupted; nothing after a good end.
std::optional<Error> error_of(const engine::Generation& generation);

}  // namespace backplane::tools
