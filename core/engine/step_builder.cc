#include "core/engine/step_builder.h"

#include <algorithm>

namespace backplane::engine {
namespace {

// The end of the part in its sequence: what will be in the cache after the step.
std::uint64_t end_of(const StepPart& part) { return part.sequence->computed + part.tokens; }

void add_tokens(sched::Step& step, const StepPart& part) {
  const sched::Sequence& sequence = *part.sequence;
  const auto first = static_cast<std::int32_t>(step.tokens());
  for (std::uint64_t p = sequence.computed; p < end_of(part); ++p) {
    step.token.push_back(sequence.tokens[p]);
    step.pos.push_back(static_cast<std::int32_t>(p));
    step.rope_row.push_back(sequence.rope_row);
  }
  for (const std::uint32_t row : part.rows) step.out_row.push_back(first + static_cast<std::int32_t>(row));
  step.q_start.push_back(static_cast<std::int32_t>(step.tokens()));
  step.kv_len.push_back(static_cast<std::int32_t>(end_of(part)));
  step.max_q = std::max(step.max_q, part.tokens);
  step.max_kv = std::max(step.max_kv, static_cast<std::uint32_t>(end_of(part)));
}

}  // namespace

sched::Step build_step(const kv::KvBook& book, std::span<const StepPart> parts, std::uint32_t n_decode) {
  sched::Step step;
  step.n_decode = n_decode;
  step.groups = book.groups();
  step.page_size = book.page_size();
  step.q_start.push_back(0);
  for (const StepPart& part : parts) add_tokens(step, part);
  step.max_pages = (step.max_kv + step.page_size - 1) / step.page_size;

  step.page_table.assign(std::size_t{step.groups} * parts.size() * step.max_pages, -1);
  step.slot.reserve(std::size_t{step.groups} * step.tokens());
  auto row = step.page_table.begin();
  for (std::uint32_t group = 0; group < step.groups; ++group) {
    for (const StepPart& part : parts) {
      const auto pages = book.page_table(part.sequence->kv, group);
      const std::uint64_t used = (end_of(part) + step.page_size - 1) / step.page_size;
      std::copy_n(pages.begin(), used, row);
      row += step.max_pages;
      for (std::uint64_t p = part.sequence->computed; p < end_of(part); ++p) {
        step.slot.push_back(book.slot(part.sequence->kv, group, p));
      }
    }
  }
  return step;
}

}  // namespace backplane::engine
