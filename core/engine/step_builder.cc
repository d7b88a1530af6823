#include "core/engine/step_builder.h"

#include <algorithm>

namespace backplane::engine {
namespace {

// The end of the part in its sequence: what will be in the cache after the step.
std::uint64_t end_of(const StepPart& part) { return part.sequence->computed + part.tokens; }

void clear(sched::Step& step) {
  step.max_q = step.max_kv = 0;
  step.token.clear();
  step.pos.clear();
  step.rope_row.clear();
  step.out_row.clear();
  step.kv_len.clear();
  step.slot.clear();
  step.q_start.assign(1, 0);
}

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

// The slots of the part's tokens, page by page. Requires: they are reserved, so no entry from the first token's page on
// is missing.
void add_slots(sched::Step& step, const StepPart& part, std::span<const std::int32_t> pages) {
  for (std::uint64_t p = part.sequence->computed; p < end_of(part);) {
    const std::uint64_t page_end = std::min(end_of(part), (p / step.page_size + 1) * step.page_size);
    const std::int64_t first = std::int64_t{pages[p / step.page_size]} * step.page_size;
    for (; p < page_end; ++p) step.slot.push_back(first + static_cast<std::int64_t>(p % step.page_size));
  }
}

}  // namespace

void build_step(const kv::KvBook& book, std::span<const StepPart> parts, std::uint32_t n_decode, sched::Step& step) {
  clear(step);
  step.n_decode = n_decode;
  step.groups = book.groups();
  step.page_size = book.page_size();
  for (const StepPart& part : parts) add_tokens(step, part);
  step.max_pages = (step.max_kv + step.page_size - 1) / step.page_size;

  step.page_table.resize(std::size_t{step.groups} * parts.size() * step.max_pages);
  step.slot.reserve(std::size_t{step.groups} * step.tokens());
  auto row = step.page_table.begin();
  for (std::uint32_t group = 0; group < step.groups; ++group) {
    for (const StepPart& part : parts) {
      const auto pages = book.page_table(part.sequence->kv, group);
      const auto used = static_cast<std::ptrdiff_t>((end_of(part) + step.page_size - 1) / step.page_size);
      std::copy_n(pages.begin(), used, row);
      std::fill(row + used, row + step.max_pages, -1);
      row += step.max_pages;
      add_slots(step, part, pages);
    }
  }
}

sched::Step build_step(const kv::KvBook& book, std::span<const StepPart> parts, std::uint32_t n_decode) {
  sched::Step step;
  build_step(book, parts, n_decode, step);
  return step;
}

}  // namespace backplane::engine
