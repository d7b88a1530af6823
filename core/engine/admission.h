// Whether a request can ever be served, and how much of the context and the KV cache it may use.
#pragma once

#include <cstdint>
#include <span>

#include "core/engine/request.h"

namespace backplane::engine {

struct Limits {
  std::uint32_t vocab_size = 0;
  std::uint64_t context = 0;     // tokens a sequence may have in the cache
  std::uint64_t kv_longest = 0;  // tokens of one sequence that the empty pools can hold, at most `context`
  bool has_tokenizer = false;
};

struct Allowance {
  std::uint32_t max_tokens = 0;      // to generate
  std::uint64_t kv_length = 0;       // tokens in the cache at most: the last one generated never gets there
  std::uint64_t planned_length = 0;  // prompt and generated tokens, as models choose their rope factors by it
};

// Throws kUsage for what is wrong with a request whatever its prompt.
void check_settings(const Request& request, std::uint32_t vocab_size, bool has_tokenizer);

// Generation ends, at the latest, when the context is full. Throws kUsage for what is wrong with the request,
// kCapacity, naming the most that fits, for a prompt longer than the context and for what an empty cache can't hold.
Allowance allow(const Request& request, const Limits& limits);

// Throws kUsage unless all ids are inside the vocabulary and there is at least one. `what` names them in the message.
void check_ids(std::span<const TokenId> ids, std::uint32_t vocab_size, std::string_view what);

}  // namespace backplane::engine
