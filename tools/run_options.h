// The options of `run`, which a single answer and a chat share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/request.h"
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
  // What users of llama.cpp expect.
  double temperature = 0.8;
  std::uint32_t top_k = 40;
  double top_p = 0.95;
  double min_p = 0.05;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::optional<std::uint32_t> top_logprobs;
  DeviceOptions device;
  bool json = false;
};

// All of a request but its prompt; max_tokens is set. Throws Error{kUsage} for sampling options out of range.
engine::Request make_request(const RunOptions& options, const OpenedModel& opened, bool chat);

}  // namespace backplane::tools
