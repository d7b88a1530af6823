// A model that prefills on one device and decodes on another.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/load.h"

namespace backplane::models {

// Both hold the whole model, with the same pages. A page's contents are where they were computed last and are brought
// over, in canonical form, when a step on the other device needs them: at a sequence's first decode step, that is. Each
// part of a mixed step runs on its own device.
class PhaseModel final : public LoadedModel {
 public:
  // Both loaded from the same file with the same context, sequences and page size. Throws Error{kUsage} otherwise.
  PhaseModel(std::unique_ptr<LoadedModel> prefill, std::unique_ptr<LoadedModel> decode);

  const engine::ModelShape& shape() const override { return prefill_->shape(); }
  std::uint32_t max_step_tokens() const override;
  std::uint32_t max_step_sequences() const override;
  std::uint32_t page_size() const override { return prefill_->page_size(); }
  std::uint32_t pages(std::uint32_t group) const override { return prefill_->pages(group); }
  std::int32_t acquire_rope_row(std::uint64_t planned_length) override;
  void release_rope_row(std::int32_t row) noexcept override;
  std::uint64_t rope_identity(std::uint64_t planned_length) const override {
    return prefill_->rope_identity(planned_length);
  }
  void copy_pages(std::uint32_t group, std::span<const std::int32_t> from, std::span<const std::int32_t> to) override;
  engine::Logits forward(const sched::Step& step) override;
  std::vector<device::Executor*> executors() override { return {&prefill_->executor(), &decode_->executor()}; }
  DType kv_type() const override { return decode_->kv_type(); }

  LoadedModel& prefill() { return *prefill_; }
  LoadedModel& decode() { return *decode_; }
  std::uint64_t pages_moved() const { return pages_moved_; }

 private:
  // Who has a page's current contents.
  enum Holder : std::uint8_t { kNobody = 0, kPrefill = 1, kDecode = 2, kBoth = 3 };

  engine::Logits run_on(LoadedModel& model, Holder me, const sched::Step& step);
  void bring(LoadedModel& to, Holder me, const sched::Step& step);

  std::unique_ptr<LoadedModel> prefill_, decode_;
  std::vector<std::vector<std::uint8_t>> holders_;  // by group and page
  std::uint64_t pages_moved_ = 0;
};

// The sequences [first, last) of a step as a step of their own. `rows` receives, for each of its out_row, the index of
// that row in the whole step.
sched::Step part_of_step(const sched::Step& step, std::uint32_t first, std::uint32_t last,
                         std::vector<std::uint32_t>& rows);

}  // namespace backplane::models
