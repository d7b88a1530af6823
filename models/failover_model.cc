#include "models/failover_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/log.h"
#include "models/kv_copy.h"

namespace backplane::models {

FailoverModel::FailoverModel(std::unique_ptr<LoadedModel> primary, Backup backup)
    : model_(std::move(primary)),
      backup_(std::move(backup)),
      shape_(model_->shape()),
      max_step_tokens_(model_->max_step_tokens()),
      max_step_sequences_(model_->max_step_sequences()) {}

// Rows of one model are one of ours each: equal rows stay a sign of equal factors.
std::int32_t FailoverModel::acquire_rope_row(std::uint64_t planned_length) {
  rows_.emplace_back();  // so that nothing can fail once the model has given its row
  const std::int32_t real = [&] {
    try {
      return model_->acquire_rope_row(planned_length);
    } catch (...) {
      rows_.pop_back();
      throw;
    }
  }();
  auto it = std::find_if(rows_.begin(), rows_.end(), [&](const Row& row) { return row.users > 0 && row.real == real; });
  if (it == rows_.end()) {
    it = std::find_if(rows_.begin(), rows_.end(), [](const Row& row) { return row.users == 0; });
    *it = {real, planned_length, 0};
  }
  ++it->users;
  const auto row = static_cast<std::int32_t>(it - rows_.begin());
  if (rows_.back().users == 0) rows_.pop_back();
  return row;
}

void FailoverModel::release_rope_row(std::int32_t row) noexcept {
  if (row < 0 || static_cast<std::size_t>(row) >= rows_.size()) return;
  Row& ours = rows_[static_cast<std::size_t>(row)];
  if (ours.users == 0) return;
  --ours.users;
  model_->release_rope_row(ours.real);
}

bool FailoverModel::rows_are_real() const {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].users > 0 && rows_[i].real != static_cast<std::int32_t>(i)) return false;
  }
  return true;
}

engine::Logits FailoverModel::forward(const sched::Step& step) {
  try {
    if (rows_are_real()) return model_->forward(step);
    sched::Step translated = step;
    for (std::int32_t& row : translated.rope_row) row = rows_.at(static_cast<std::size_t>(row)).real;
    return model_->forward(translated);
  } catch (const DeviceLost& loss) {
    give_up(loss);
  }
}

void FailoverModel::copy_pages(std::uint32_t group, std::span<const std::int32_t> from,
                               std::span<const std::int32_t> to) {
  try {
    model_->copy_pages(group, from, to);
  } catch (const DeviceLost& loss) {
    give_up(loss);
  }
}

void FailoverModel::move_to(std::unique_ptr<LoadedModel> next, std::span<const std::vector<std::int32_t>> pages) {
  require_alike(*next, "the device to move to");
  if (model_->executors().size() != 1 || next->executors().size() != 1) {
    throw Error(ErrorCode::kUsage, "a model that runs on a device for each phase can't be moved", {},
                "move it from one device to one device");
  }
  std::vector<Row> rows = acquire_again(*next);
  for (std::uint32_t g = 0; g < pages.size(); ++g) copy_kv_pages(model_->executor(), next->executor(), g, pages[g]);
  rows_ = std::move(rows);
  model_ = std::move(next);
}

void FailoverModel::give_up(const DeviceLost& loss) {
  if (failed_over_ || !backup_.load) throw DeviceLost(loss);
  fail_over(loss);
  throw engine::ModelReplaced(loss.cause());
}

void FailoverModel::fail_over(const DeviceLost& loss) {
  if (refusal_) throw DeviceLost(*refusal_);
  const auto refuse = [&](const std::exception& reason) {
    refusal_.emplace(fmt::format("{}; {} can't go on in its place", loss.cause(), backup_.name), reason.what());
    throw DeviceLost(*refusal_);
  };
  try {
    std::unique_ptr<LoadedModel> backup = backup_.load();
    require_alike(*backup, "--failover");
    rows_ = acquire_again(*backup);
    model_ = std::move(backup);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInterrupted) throw;  // by the user, who may let it try again
    refuse(error);
  } catch (const std::exception& error) {
    refuse(error);
  }
  failed_over_ = true;
  log(LogLevel::kWarning, "failover", "{}; going on with {}, where what was under way is computed again", loss.cause(),
      backup_.name);
}

void FailoverModel::require_alike(const LoadedModel& other, std::string_view option) const {
  const engine::ModelShape& shape = other.shape();
  bool alike = shape.vocab_size == shape_.vocab_size && shape.max_context == shape_.max_context &&
               shape.groups.size() == shape_.groups.size() && other.page_size() == page_size() &&
               other.max_step_tokens() >= max_step_tokens_ && other.max_step_sequences() >= max_step_sequences_;
  for (std::uint32_t g = 0; alike && g < shape_.groups.size(); ++g) {
    alike = shape.groups[g].window == shape_.groups[g].window && other.pages(g) == pages(g);
  }
  if (!alike) {
    throw Error(ErrorCode::kUsage, "it can't have the same KV pages or steps", option,
                "choose a device that shares a page size");
  }
}

// Our rows as they are in use, with rows of the backup.
std::vector<FailoverModel::Row> FailoverModel::acquire_again(LoadedModel& other) const {
  std::vector<Row> rows = rows_;
  for (Row& row : rows) {
    for (std::uint32_t user = 0; user < row.users; ++user) row.real = other.acquire_rope_row(row.planned_length);
  }
  return rows;
}

}  // namespace backplane::models
