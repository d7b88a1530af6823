// A model that is another one in all but what a test changes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/engine/model.h"

namespace backplane::test {

// `model` must outlive it.
class WrappedModel : public engine::Model {
 public:
  explicit WrappedModel(engine::Model& model) : model_(model) {}
  const engine::ModelShape& shape() const override { return model_.shape(); }
  std::uint32_t max_step_tokens() const override { return model_.max_step_tokens(); }
  std::uint32_t max_step_sequences() const override { return model_.max_step_sequences(); }
  std::uint32_t page_size() const override { return model_.page_size(); }
  std::uint32_t pages(std::uint32_t group) const override { return model_.pages(group); }
  std::int32_t acquire_rope_row(std::uint64_t length) override { return model_.acquire_rope_row(length); }
  void release_rope_row(std::int32_t row) noexcept override { model_.release_rope_row(row); }
  std::uint64_t rope_identity(std::uint64_t length) const override { return model_.rope_identity(length); }
  void copy_pages(std::uint32_t group, std::span<const std::int32_t> from, std::span<const std::int32_t> to) override {
    model_.copy_pages(group, from, to);
  }
  engine::Logits forward(const sched::Step& step) override { return model_.forward(step); }

 private:
  engine::Model& model_;
};

// Says that it has fewer pages than it has.
class SmallPool final : public WrappedModel {
 public:
  SmallPool(engine::Model& model, std::uint32_t pages) : WrappedModel(model), pages_(pages) {}
  std::uint32_t pages(std::uint32_t group) const override { return std::min(pages_, WrappedModel::pages(group)); }

 private:
  std::uint32_t pages_;
};

}  // namespace backplane::test
