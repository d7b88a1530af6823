#include "models/phase_model.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "models/kv_copy.h"

namespace backplane::models {

sched::Step part_of_step(const sched::Step& step, std::uint32_t first, std::uint32_t last,
                         std::vector<std::uint32_t>& rows) {
  const std::int32_t begin = step.q_start[first], end = step.q_start[last];
  const auto tokens = [&](const auto& all) { return std::vector(all.begin() + begin, all.begin() + end); };
  const std::size_t t = step.tokens(), b = step.sequences(), m = step.max_pages;
  sched::Step part;
  part.n_decode = std::min(last, std::max(first, step.n_decode)) - first;
  part.groups = step.groups;
  part.page_size = step.page_size;
  part.max_pages = step.max_pages;
  part.token = tokens(step.token);
  part.pos = tokens(step.pos);
  part.rope_row = tokens(step.rope_row);
  for (std::uint32_t s = first; s <= last; ++s) part.q_start.push_back(step.q_start[s] - begin);
  for (std::uint32_t s = first; s < last; ++s) {
    part.kv_len.push_back(step.kv_len[s]);
    part.max_kv = std::max(part.max_kv, static_cast<std::uint32_t>(step.kv_len[s]));
    part.max_q = std::max(part.max_q, static_cast<std::uint32_t>(step.q_start[s + 1] - step.q_start[s]));
  }
  for (std::size_t g = 0; g < step.groups; ++g) {
    const auto table = step.page_table.begin() + static_cast<std::ptrdiff_t>((g * b + first) * m);
    part.page_table.insert(part.page_table.end(), table, table + static_cast<std::ptrdiff_t>((last - first) * m));
    const auto slot = step.slot.begin() + static_cast<std::ptrdiff_t>(g * t);
    part.slot.insert(part.slot.end(), slot + begin, slot + end);
  }
  rows.clear();
  for (std::uint32_t r = 0; r < step.rows(); ++r) {
    if (step.out_row[r] < begin || step.out_row[r] >= end) continue;
    part.out_row.push_back(step.out_row[r] - begin);
    rows.push_back(r);
  }
  return part;
}

PhaseModel::PhaseModel(std::unique_ptr<LoadedModel> prefill, std::unique_ptr<LoadedModel> decode)
    : prefill_(std::move(prefill)), decode_(std::move(decode)) {
  bool alike = prefill_->page_size() == decode_->page_size() &&
               prefill_->shape().groups.size() == decode_->shape().groups.size() &&
               prefill_->shape().max_context == decode_->shape().max_context;
  for (std::uint32_t g = 0; alike && g < prefill_->shape().groups.size(); ++g) {
    alike = prefill_->pages(g) == decode_->pages(g);
    holders_.emplace_back(prefill_->pages(g), kNobody);
  }
  if (!alike) {
    throw Error(ErrorCode::kUsage, "the prefill and the decode device can't have the same KV pages", "--prefill-device",
                "choose devices that share a page size");
  }
}

std::uint32_t PhaseModel::max_step_tokens() const {
  return std::min(prefill_->max_step_tokens(), decode_->max_step_tokens());
}

std::uint32_t PhaseModel::max_step_sequences() const {
  return std::min(prefill_->max_step_sequences(), decode_->max_step_sequences());
}

std::int32_t PhaseModel::acquire_rope_row(std::uint64_t planned_length) {
  const std::int32_t row = prefill_->acquire_rope_row(planned_length);
  try {
    const std::int32_t other = decode_->acquire_rope_row(planned_length);
    if (other == row) return row;
    decode_->release_rope_row(other);
    throw Error(ErrorCode::kInternal, "the two devices number their rope tables differently");
  } catch (...) {
    prefill_->release_rope_row(row);
    throw;
  }
}

void PhaseModel::release_rope_row(std::int32_t row) noexcept {
  prefill_->release_rope_row(row);
  decode_->release_rope_row(row);
}

// Copies the pages that the step reads and `to` doesn't have.
void PhaseModel::bring(LoadedModel& to, Holder me, const sched::Step& step) {
  LoadedModel& from = me == kPrefill ? *decode_ : *prefill_;
  const std::size_t per_group = std::size_t{step.sequences()} * step.max_pages;
  for (std::uint32_t g = 0; g < step.groups; ++g) {
    std::vector<std::int32_t> wanted;
    for (std::size_t i = 0; i < per_group; ++i) {
      const std::int32_t page = step.page_table[g * per_group + i];
      if (page < 0) continue;
      const std::uint8_t holder = holders_[g][static_cast<std::size_t>(page)];
      if (holder != kNobody && (holder & me) == 0) wanted.push_back(page);
    }
    std::sort(wanted.begin(), wanted.end());
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    copy_kv_pages(from.executor(), to.executor(), g, wanted);
    for (const std::int32_t page : wanted) holders_[g][static_cast<std::size_t>(page)] = kBoth;
    pages_moved_ += wanted.size();
  }
}

// Where the originals are, there the copies will be.
void PhaseModel::copy_pages(std::uint32_t group, std::span<const std::int32_t> from, std::span<const std::int32_t> to) {
  for (const auto& [model, me] : {std::pair{prefill_.get(), kPrefill}, std::pair{decode_.get(), kDecode}}) {
    std::vector<std::int32_t> sources, targets;
    for (std::size_t i = 0; i < from.size(); ++i) {
      if ((holders_[group][static_cast<std::size_t>(from[i])] & me) == 0) continue;
      sources.push_back(from[i]);
      targets.push_back(to[i]);
    }
    model->copy_pages(group, sources, targets);
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    holders_[group][static_cast<std::size_t>(to[i])] = holders_[group][static_cast<std::size_t>(from[i])];
  }
}

engine::Logits PhaseModel::run_on(LoadedModel& model, Holder me, const sched::Step& step) {
  bring(model, me, step);
  engine::Logits logits = model.forward(step);
  for (std::uint32_t g = 0; g < step.groups; ++g) {
    for (std::uint32_t t = 0; t < step.tokens(); ++t) {
      const std::int64_t slot = step.slot[std::size_t{g} * step.tokens() + t];
      if (slot >= 0) holders_[g][static_cast<std::size_t>(slot / step.page_size)] = me;
    }
  }
  return logits;
}

engine::Logits PhaseModel::forward(const sched::Step& step) {
  if (step.n_decode == step.sequences()) return run_on(*decode_, kDecode, step);
  if (step.n_decode == 0) return run_on(*prefill_, kPrefill, step);
  std::vector<std::uint32_t> rows, more;
  const engine::Logits decoded = run_on(*decode_, kDecode, part_of_step(step, 0, step.n_decode, rows));
  const engine::Logits filled = run_on(*prefill_, kPrefill, part_of_step(step, step.n_decode, step.sequences(), more));
  engine::Logits all = decoded;
  all.values.assign(std::size_t{step.rows()} * shape().vocab_size, 0);
  const auto place = [&](const engine::Logits& part, const std::vector<std::uint32_t>& at) {
    for (std::uint32_t r = 0; r < at.size(); ++r) {
      const auto row = part.row(r);
      std::copy(row.begin(), row.end(),
                all.values.begin() + static_cast<std::ptrdiff_t>(std::size_t{at[r]} * shape().vocab_size));
    }
  };
  place(decoded, rows);
  place(filled, more);
  return all;
}

}  // namespace backplane::models
