// From what a step computes to the arrays that a device reads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/kv/kv_book.h"
#include "core/sched/sequence.h"
#include "core/sched/step.h"

namespace backplane::engine {

// One sequence's share of a step.
struct StepPart {
  const sched::Sequence* sequence = nullptr;
  std::uint32_t tokens = 0;         // from sequence->computed on
  std::vector<std::uint32_t> rows;  // which of them need logits, counted from the share's first, ascending
};

// Requires: the slots of every part are reserved in the book; the first n_decode parts decode.
sched::Step build_step(const kv::KvBook& book, std::span<const StepPart> parts, std::uint32_t n_decode);
// The same into arrays that have been used before: from step to step they keep their memory.
void build_step(const kv::KvBook& book, std::span<const StepPart> parts, std::uint32_t n_decode, sched::Step& step);

}  // namespace backplane::engine
