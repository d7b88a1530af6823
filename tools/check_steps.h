// The steps that a cross-check runs.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/base/ids.h"
#include "core/engine/model.h"

namespace backplane::tools::check {

// Sequences whose tokens are given, and how many of them each step computes: of every line, in their order.
struct Task {
  std::vector<std::vector<TokenId>> lines;
  std::vector<std::vector<std::uint32_t>> steps;
};

// Of a few sequences: short; over a page's border; two of different lengths in one step; in chunks that see what is
// cached, then a decode; decodes from the second token on; a decode and a prefill in one step, then two decodes. All
// within `limit` tokens a sequence, and `most` tokens a step: longer ones are cut.
std::vector<Task> builtin_tasks(std::uint32_t vocabulary, std::uint32_t page, std::uint32_t limit, std::uint32_t most);
// A prompt in steps of at most `most` tokens, and with its last token as a decode.
std::vector<Task> prompt_tasks(const std::vector<TokenId>& ids, std::uint32_t most);

// What a model must be loaded for.
struct Needs {
  std::uint32_t context = 1, sequences = 1, step_tokens = 1;
};
Needs needs_of(const std::vector<Task>& tasks);

// Asks for the logits of every token. Throws Error: kUsage for ids that the model doesn't have, kCapacity, and what the
// model throws.
void run(engine::Model& model, const Task& task);

}  // namespace backplane::tools::check
