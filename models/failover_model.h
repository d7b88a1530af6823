// A model that goes on with another device: when its own is lost, or when it is told to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "models/load.h"

namespace backplane::models {

// Where a model goes on.
struct Backup {
  std::string name;  // of the device, for messages
  // Loads the same file with the same context, sequences, page size and step size. Empty: a loss is final.
  std::function<std::unique_ptr<LoadedModel>()> load;
};

// Runs on the primary. When a step, or a copy of pages, finds its device lost, the backup is loaded (not before), the
// primary given up, a warning logged and engine::ModelReplaced thrown; all later steps run on the backup. Rope rows
// acquired before stay valid. When the backup can't be loaded, or isn't alike, the step throws DeviceLost with both
// reasons, and so do all later ones. A second loss is final.
class FailoverModel final : public LoadedModel {
 public:
  FailoverModel(std::unique_ptr<LoadedModel> primary, Backup backup);

  const engine::ModelShape& shape() const override { return shape_; }
  std::uint32_t max_step_tokens() const override { return max_step_tokens_; }
  std::uint32_t max_step_sequences() const override { return max_step_sequences_; }
  std::uint32_t page_size() const override { return model_->page_size(); }
  std::uint32_t pages(std::uint32_t group) const override { return model_->pages(group); }
  std::int32_t acquire_rope_row(std::uint64_t planned_length) override;
  void release_rope_row(std::int32_t row) noexcept override;
  std::uint64_t rope_identity(std::uint64_t planned_length) const override {
    return model_->rope_identity(planned_length);
  }
  void copy_pages(std::uint32_t group, std::span<const std::int32_t> from, std::span<const std::int32_t> to) override;
  engine::Logits forward(const sched::Step& step) override;

  // Of the model in use: references end with a failover.
  std::vector<device::Executor*> executors() override { return model_->executors(); }
  DType kv_type() const override { return model_->kv_type(); }

  // Goes on with `next` from the next step on: brings over the contents of these pages (of each group), keeps the rope
  // rows, gives the model in use up. Nothing is computed again, and, where both keep K and V in one type, the pages are
  // exact. Between two steps of whoever uses the model. Throws Error, and then goes on as before: kUsage where `next`
  // isn't alike or not on one executor.
  void move_to(std::unique_ptr<LoadedModel> next, std::span<const std::vector<std::int32_t>> pages);

  bool failed_over() const { return failed_over_; }
  bool given_up() const { return refusal_.has_value(); }  // the backup can't be had: all steps throw

 private:
  // What a row we gave out stands for; all its users need the same factors.
  struct Row {
    std::int32_t real = -1;  // of the model in use
    std::uint64_t planned_length = 0;
    std::uint32_t users = 0;
  };

  // Throws ModelReplaced, or DeviceLost.
  [[noreturn]] void give_up(const DeviceLost& loss);
  void fail_over(const DeviceLost& loss);
  void require_alike(const LoadedModel& other, std::string_view option) const;
  std::vector<Row> acquire_again(LoadedModel& other) const;
  bool rows_are_real() const;

  std::unique_ptr<LoadedModel> model_;  // in use
  Backup backup_;
  engine::ModelShape shape_;
  std::uint32_t max_step_tokens_, max_step_sequences_;
  std::vector<Row> rows_;
  std::optional<DeviceLost> refusal_;  // once there was no backup to go on with
  bool failed_over_ = false;
};

}  // namespace backplane::models
