// A model whose steps are now and then run again on another device, to see whether the two agree while serving.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "models/load.h"

namespace backplane::models {

class ShadowRecord;

struct ShadowOptions {
  double rate = 0.01;      // of steps that are run again, 0 to 1
  std::uint64_t seed = 0;  // of the choice: the same steps each time
  // The best tokens may differ where the shadow's logits of the two are this close: a near-tie, not a disagreement.
  double tie = 0.02;
  std::size_t keep = 64;                      // disagreements that are remembered, the latest
  std::shared_ptr<ShadowRecord> record = {};  // where what is found goes; null: one of the model's own
};

struct Disagreement {
  std::uint64_t step = 0;     // from 0
  std::int32_t position = 0;  // of the token in its sequence
  TokenId got = 0, want = 0;  // the best tokens of the device in use and of the shadow
  double margin = 0;          // of the shadow's logits for the two
  // The op that differs most when both are given the same inputs, and by how much: rms(difference) / rms(value). Empty
  // where the sequence had too many tokens in the step to look.
  std::string op;
  double error = 0;
};

struct ShadowReport {
  std::uint64_t steps = 0, sampled = 0, rows = 0;  // rows of logits compared
  std::uint64_t ties = 0;                          // other best tokens within the tie
  std::uint64_t disagreements = 0;
  double largest_difference = 0;  // of two logits
  double kl_sum = 0;              // of the distributions, shadow's against the device's, over all rows
  std::map<std::string, std::uint64_t> by_op;
  std::deque<Disagreement> latest;
  std::uint64_t failures = 0;  // of the shadow: steps that it could not run, or not compare op by op
  std::string failure;         // the last one's text
  bool dropped = false;        // for its failures: no step is sampled any more

  double mean_kl() const { return rows ? kl_sum / static_cast<double>(rows) : 0; }
};

// What shadow runs have found so far. Outlives the model, which a failover gives up. From any thread.
class ShadowRecord {
 public:
  ShadowReport report() const;
  // Logs the first one, and the end of the shadow.
  void add_failure(const std::string& text, bool dropped);

 private:
  friend class ShadowModel;
  mutable std::mutex mutex_;
  ShadowReport report_;
};

// Runs every step on the primary, and gives its logits. A sampled step's KV pages are copied to the shadow before, the
// step is run there too, and the logits are compared. Where the best tokens disagree, the sequence's share of the step
// is run once more on both, op by op. Nothing that happens on the shadow reaches a request: its failures are counted,
// and once its device is lost, or fails again and again, it is dropped and its memory given back.
class ShadowModel final : public LoadedModel {
 public:
  // Both loaded from the same file with the same context, sequences, page size and step size, each on one executor.
  // Throws Error{kUsage} otherwise and for a rate that is none.
  ShadowModel(std::unique_ptr<LoadedModel> primary, std::unique_ptr<LoadedModel> shadow, ShadowOptions options = {});

  const engine::ModelShape& shape() const override { return primary_->shape(); }
  std::uint32_t max_step_tokens() const override { return max_step_tokens_; }
  std::uint32_t max_step_sequences() const override { return max_step_sequences_; }
  std::uint32_t page_size() const override { return primary_->page_size(); }
  std::uint32_t pages(std::uint32_t group) const override { return primary_->pages(group); }
  std::int32_t acquire_rope_row(std::uint64_t planned_length) override;
  void release_rope_row(std::int32_t row) noexcept override;
  std::uint64_t rope_identity(std::uint64_t planned_length) const override {
    return primary_->rope_identity(planned_length);
  }
  // The shadow is brought what it needs with each step.
  void copy_pages(std::uint32_t group, std::span<const std::int32_t> from, std::span<const std::int32_t> to) override {
    primary_->copy_pages(group, from, to);
  }
  engine::Logits forward(const sched::Step& step) override;
  std::vector<device::Executor*> executors() override { return primary_->executors(); }
  DType kv_type() const override { return primary_->kv_type(); }

  ShadowReport report() const { return record_->report(); }  // from any thread

 private:
  bool chosen(std::uint64_t step) const;
  void copy_pages(const sched::Step& step);
  void compare(const sched::Step& step, const engine::Logits& got, const engine::Logits& want);
  void examine(const sched::Step& step, std::uint32_t row, Disagreement& out);
  void record(std::vector<Disagreement> found);
  void note(const std::exception& failure);

  std::unique_ptr<LoadedModel> primary_, shadow_;  // no shadow: dropped
  ShadowOptions options_;
  std::shared_ptr<ShadowRecord> record_;
  std::uint32_t max_step_tokens_, max_step_sequences_;
  std::uint64_t step_ = 0;
  std::uint32_t failures_ = 0;  // since the last step that was shadowed
  bool unsure_ = false;         // a run for comparison broke off, so that the primary's pages may be anything
};

}  // namespace backplane::models
