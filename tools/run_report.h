// What `run` says about a generation: the JSON object for scripts, the figures for people.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <vector>

#include "core/engine/generation.h"
#include "tools/loaded_model.h"

namespace backplane::tools {

struct RunReport {
  std::span<const engine::Generation> answers;  // at least one
  LoadedModel& loaded;
  std::shared_ptr<const text::Tokenizer> tokenizer;  // null: text is null
  const std::vector<TokenId>& prompt_ids;
  std::uint64_t seed = 0;
  bool steps = false;         // --top-logprobs
  bool prompt_steps = false;  // --prompt-logprobs
};

// device, device_at_end (another one after a failover), prompt_ids, ids, text, finish_reason, timings, fallbacks; with
// `steps` steps; with a shadow, shadow; with error, error. Of several answers, ids, text, finish_reason, steps and
// error are in a list, choices. A log-probability of minus infinity is -9999, as the OpenAI API has it.
nlohmann::ordered_json report_json(const RunReport& report);
// Timings and the ledger, on stderr.
void print_summary(const RunReport& report);

// The error that a generation ended with: its own, or that it was interrupted; nothing after a good end.
std::optional<Error> error_of(const engine::Generation& generation);
// That of the first answer that has one.
std::optional<Error> error_of(std::span<const engine::Generation> answers);

}  // namespace backplane::tools
