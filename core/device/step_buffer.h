// The step descriptor on each device of an executor.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/device/storage.h"
#include "core/sched/step.h"

namespace backplane::device {

// The largest step that a plan allows.
struct StepLimits {
  std::uint32_t tokens = 0;
  std::uint32_t sequences = 0;
  std::uint32_t rows = 0;
  std::uint32_t groups = 1;
  std::uint32_t max_pages = 1;  // of a sequence in a group
  std::uint32_t page_size = 16;
};

class StepBuffer {
 public:
  StepBuffer(const Devices& devices, const StepLimits& limits);

  // Throws Error{kInternal} when the step exceeds the limits or contradicts itself; then the step before stays set.
  // `step` must outlive its use. With `max_pages`, at least its own, the page table gets that width, and max_kv is what
  // it holds: work that was recorded for the width serves all steps that fit.
  void set(const sched::Step& step, std::uint32_t max_pages = 0);
  // The width for steps of up to so many pages: few widths serve all.
  std::uint32_t bucket(std::uint32_t max_pages) const;
  // The counts of the step; nothing is uploaded.
  const bp_step* counts() const { return &steps_.back(); }
  // The descriptor for a slot, its device arrays uploaded: of those, what differs from the step before. Valid until the
  // next set().
  const bp_step* on(Slot slot);
  // What was uploaded may not have arrived: everything is uploaded again.
  void forget();
  // An op has written to the tokens of this step on that slot.
  void tokens_changed(Slot slot) { resident_[slot].front().clear(); }

  // i32 arrays of the current step as ops take them.
  bp_tensor token(Slot slot) { return array(slot, on(slot)->token_offset, step_->tokens()); }
  bp_tensor pos(Slot slot) { return array(slot, on(slot)->pos_offset, step_->tokens()); }
  bp_tensor rope_row(Slot slot) { return array(slot, on(slot)->rope_row_offset, step_->tokens()); }
  bp_tensor out_row(Slot slot, std::uint32_t begin, std::uint32_t count);

  // Counts only, for planning.
  static bp_step counts(const StepLimits& limits, std::uint32_t n_decode);

 private:
  void check(const sched::Step& step) const;
  void widen(std::uint32_t max_pages);
  bp_tensor array(Slot slot, std::uint64_t offset, std::uint32_t count);
  void upload(Slot slot);
  void upload(Slot slot, std::size_t array, std::uint64_t offset, std::span<const std::byte> contents);

  static constexpr std::size_t kArrays = 8;

  const Devices* devices_;
  StepLimits limits_;
  bp_step template_{};  // offsets
  std::uint64_t bytes_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<bp_step> steps_;
  std::vector<char> uploaded_;
  std::vector<std::array<std::vector<std::byte>, kArrays>> resident_;  // by slot: what the device's arrays begin with
  const sched::Step* step_ = nullptr;
  // The page table, where it isn't the step's. Of the step before, too, which may still be under way.
  std::vector<std::int32_t> widened_, widened_before_;
};

}  // namespace backplane::device
