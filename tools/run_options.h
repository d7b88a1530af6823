// The options of `run`, which a single answer and a chat share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/request.h"
#include "tools/command_line.h"
#include "tools/loaded_model.h"
#include "tools/options.h"

namespace backplane::tools {

inline constexpr std::uint32_t kMostTopLogprobs = 1000;
inline constexpr std::uint32_t kReplyTokens = 1024;      // of a chat's reply, when the user doesn't say
inline constexpr std::uint32_t kCompletionTokens = 256;  // of a completion

struct RunOptions {
  std::string model;
  std::optional<std::string> prompt, prompt_ids, system;
  bool chat = false, raw = false;
  std::optional<std::uint32_t> max_tokens;
  std::uint32_t min_tokens = 0;
  std::uint32_t answers = 1;
  // What users of llama.cpp expect.
  double temperature = 0.8;
  std::uint32_t top_k = 40;
  double top_p = 0.95;
  double min_p = 0.05;
  double typical_p = 1;
  double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  std::vector<std::string> logit_bias;  // ID=BIAS
  std::vector<std::string> bad_words;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop, stop_ids;
  bool include_stop = false;
  bool ignore_eos = false;
  std::optional<std::uint32_t> top_logprobs, prompt_logprobs;
  DeviceOptions device;
  bool json = false;
};

// The options that say how the text is generated.
void add_sampling(Command& command, RunOptions& options);

// All of a request but its prompt; max_tokens is set. Throws Error{kUsage} for options out of range and for tokens that
// the model doesn't have.
engine::Request make_request(const RunOptions& options, const OpenedModel& opened, bool chat);

}  // namespace backplane::tools
