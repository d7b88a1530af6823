// Runs each step on two devices and compares, op by op.
#pragma once

#include "core/engine/model.h"
#include "models/load.h"
#include "tools/check_result.h"
#include "tools/check_trace.h"

namespace backplane::tools::check {

// A model to run steps on; its logits are the reference's. Every step runs five times:
//   on the reference, exactly as it is;
//   on the reference, storing what the subject would: the source of every op's inputs and of what it should give;
//   on the subject with those inputs: the isolated error of each op;
//   on the subject, its own chain: the accumulated error;
//   on the subject, its own chain with nobody watching: logits and KV pages as users get them.
// Each chain has KV pages of its own, kept here and put into the pools before its run.
class PairModel : public engine::Model {
 public:
  // Both were loaded from one file, with the same page size and limits, and must outlive this.
  PairModel(models::LoadedModel& subject, models::LoadedModel& reference);

  const engine::ModelShape& shape() const override { return reference_.shape(); }
  std::uint32_t max_step_tokens() const override { return reference_.max_step_tokens(); }
  std::uint32_t max_step_sequences() const override { return reference_.max_step_sequences(); }
  std::uint32_t page_size() const override { return reference_.page_size(); }
  std::uint32_t pages(std::uint32_t group) const override { return reference_.pages(group); }
  std::int32_t acquire_rope_row(std::uint64_t planned_length) override;
  void release_rope_row(std::int32_t row) noexcept override;
  std::uint64_t rope_identity(std::uint64_t planned_length) const override {
    return reference_.rope_identity(planned_length);
  }
  // The steps of a check share no pages, so it has none to copy.
  void copy_pages(std::uint32_t group, std::span<const std::int32_t> from, std::span<const std::int32_t> to) override;
  engine::Logits forward(const sched::Step& step) override;

  const CheckResult& result() const { return result_; }

 private:
  engine::Logits run(models::LoadedModel& model, const sched::Step& step, KvState& kv, device::Observer* observer);
  void compare_isolated(const sched::Step& step, const StepTrace& source, const StepTrace& isolated);
  void compare_op(const sched::Step& step, const OpKey& key, const StepTrace& source, const StepTrace& isolated);
  std::string why_not(const OpKey& key, const StepTrace& isolated) const;
  void note(OpResult& result, const Array& got, const Array& want, const Array& bound);
  void compare_logits(const engine::Logits& exact, const engine::Logits& source, const engine::Logits& own);

  models::LoadedModel& subject_;
  models::LoadedModel& reference_;
  KvState exact_kv_, source_kv_, own_kv_;
  CheckResult result_;
};

}  // namespace backplane::tools::check
