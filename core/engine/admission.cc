#include "core/engine/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/text/stop_matcher.h"

namespace backplane::engine {
namespace {

void check_each(std::span<const TokenId> ids, std::uint32_t vocab_size, std::string_view what) {
  for (const TokenId id : ids) {
    if (id >= 0 && static_cast<std::uint32_t>(id) < vocab_size) continue;
    throw Error(ErrorCode::kUsage, fmt::format("{} has no token {}", what, id), {},
                fmt::format("the vocabulary's ids are 0 to {}", vocab_size - 1));
  }
}

void check_prompt_fits(std::uint64_t prompt, const Limits& limits) {
  if (prompt > limits.context) {
    throw Error(ErrorCode::kCapacity,
                fmt::format("the prompt of {} tokens is longer than the context of {}", prompt, limits.context), {},
                "shorten the prompt, or use a larger context if the model has one");
  }
  if (prompt > limits.kv_longest) {
    throw Error(
        ErrorCode::kCapacity,
        fmt::format("the prompt of {} tokens does not fit the KV cache, which holds {}", prompt, limits.kv_longest), {},
        "shorten the prompt, or give the KV cache more memory");
  }
}

}  // namespace

void check_ids(std::span<const TokenId> ids, std::uint32_t vocab_size, std::string_view what) {
  if (ids.empty()) throw Error(ErrorCode::kUsage, fmt::format("{} is empty", what), {}, "give at least one token");
  check_each(ids, vocab_size, what);
}

void check_settings(const Request& request, std::uint32_t vocab_size, bool has_tokenizer) {
  check_each(request.stop_ids, vocab_size, "the list of stop ids");
  sample::validate(request.sampling, vocab_size);
  if (request.n == 0 || request.n > kMostAnswers) {
    throw Error(ErrorCode::kUsage, fmt::format("n can't be {}", request.n), {},
                fmt::format("ask for 1 to {} answers", kMostAnswers));
  }
  if (request.max_tokens == 0u) {
    throw Error(ErrorCode::kUsage, "max_tokens can't be 0", {}, "ask for at least one token");
  }
  if (request.max_tokens && request.min_tokens > *request.max_tokens) {
    throw Error(ErrorCode::kUsage,
                fmt::format("min_tokens can't be {}, more than max_tokens {}", request.min_tokens, *request.max_tokens),
                {}, "give a number from 0 to max_tokens");
  }
  if (!has_tokenizer && !request.stop.empty()) {
    throw Error(ErrorCode::kUsage, "stop strings need a tokenizer, and this model has none", {},
                "use stop ids instead");
  }
  const text::StopMatcher stops(request.stop);  // or it throws
}

Allowance allow(const Request& request, const Limits& limits) {
  check_ids(request.prompt, limits.vocab_size, "the prompt");
  check_settings(request, limits.vocab_size, limits.has_tokenizer);
  const std::uint64_t prompt = request.prompt.size();
  check_prompt_fits(prompt, limits);

  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  // The last token is only chosen, never computed: it needs no place.
  std::uint64_t wanted = std::min(limits.context - prompt + 1, kMost);
  if (request.max_tokens) {
    wanted = std::min<std::uint64_t>(wanted, *request.max_tokens);
    if (prompt + wanted - 1 > limits.kv_longest) {
      throw Error(
          ErrorCode::kCapacity,
          fmt::format("a prompt of {} tokens and {} more do not fit the KV cache, which holds {}", prompt, wanted,
                      limits.kv_longest),
          {},
          fmt::format("ask for at most {} tokens, or give the KV cache more memory", limits.kv_longest - prompt + 1));
    }
  } else {
    wanted = std::min(wanted, limits.kv_longest - prompt + 1);
  }
  return {.max_tokens = static_cast<std::uint32_t>(wanted),
          .kv_length = prompt + wanted - 1,
          .planned_length = std::min(prompt + wanted, limits.context)};
}

}  // namespace backplane::engine
