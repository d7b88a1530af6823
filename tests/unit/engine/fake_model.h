// A model whose logits are a hash of the tokens it finds in its own paged KV store, so that every wrong slot, page,
// position or stale page shows in the results.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/engine/model.h"

namespace backplane::engine {

struct FakeOptions {
  std::uint32_t vocab_size = 23;
  std::uint32_t max_context = 200;
  std::uint32_t max_step_tokens = 64;
  std::uint32_t max_step_sequences = 64;
  std::uint32_t page_size = 4;
  std::vector<std::uint32_t> windows = {0};
  std::vector<std::uint32_t> pages = {100};
  std::uint64_t long_from = ~std::uint64_t{0};  // planned lengths from here on have rope factors of their own each
  std::size_t rope_rows = 64;                   // different factors that may be in use at once
};

// Checks each step against the meaning of bp_step and throws std::logic_error, which no test expects, when it breaks
// it.
class FakeModel : public Model {
 public:
  explicit FakeModel(FakeOptions options = {});
  ~FakeModel() override;

  const ModelShape& shape() const override { return shape_; }
  std::uint32_t max_step_tokens() const override { return options_.max_step_tokens; }
  std::uint32_t max_step_sequences() const override { return options_.max_step_sequences; }
  std::uint32_t page_size() const override { return options_.page_size; }
  std::uint32_t pages(std::uint32_t group) const override { return options_.pages.at(group); }
  std::int32_t acquire_rope_row(std::uint64_t planned_length) override;
  void release_rope_row(std::int32_t row) noexcept override;
  std::uint64_t rope_identity(std::uint64_t planned_length) const override {
    return planned_length >= options_.long_from ? planned_length : 0;
  }
  void copy_pages(std::uint32_t group, std::span<const std::int32_t> from, std::span<const std::int32_t> to) override;
  Logits forward(const sched::Step& step) override;

  // The logits after `tokens`, worked out from the list itself: the oracle. `factors` is 0, or a planned length that is
  // not below long_from.
  std::vector<double> expected(const std::vector<TokenId>& tokens, std::uint64_t factors = 0) const;
  // What a request must generate with greedy sampling.
  std::vector<TokenId> greedy(std::vector<TokenId> prompt, std::size_t n, std::uint64_t factors = 0) const;

  // The contents of all pages are gone; what a step needs of them and nobody wrote again fails it.
  void lose_pages();

  int rope_rows_held() const;                                       // references to them
  const std::vector<sched::Step>& steps() const { return steps_; }  // that it was asked for

  // Called with each step before it runs; may throw.
  std::function<void(const sched::Step&)> before_step;
  // Called before pages are copied; may throw.
  std::function<void()> before_copy;
  // Called with the logits of each step before they are returned.
  std::function<void(const sched::Step&, Logits&)> after_step;

 private:
  struct Entry {
    TokenId token = -1;
    std::int32_t pos = -1;
    std::uint64_t factors = 0;
  };
  struct RopeRow {
    std::uint64_t factors = 0;
    int users = 0;
  };

  void write(const sched::Step& step);
  std::uint64_t read_history(const sched::Step& step, std::uint32_t sequence, std::int32_t pos) const;
  void logits_of(std::uint64_t history, double* out) const;

  FakeOptions options_;
  ModelShape shape_;
  std::vector<std::map<std::int64_t, Entry>> store_;  // by group and slot
  std::vector<sched::Step> steps_;
  std::vector<RopeRow> rope_;
};

}  // namespace backplane::engine
