#include "models/shadow_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/sample/philox.h"
#include "models/kv_copy.h"
#include "models/op_compare.h"
#include "models/phase_model.h"

namespace backplane::models {
namespace {

// The most tokens of a sequence in a step whose ops are compared one by one: all their activations are kept.
constexpr std::uint32_t kMostTokens = 32;

TokenId best_of(std::span<const double> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double log_sum_exp(std::span<const double> x) {
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const double v : x) sum += std::exp(v - largest);
  return largest + std::log(sum);
}

double kl_divergence(std::span<const double> p, std::span<const double> q) {
  const double p_sum = log_sum_exp(p), q_sum = log_sum_exp(q);
  double kl = 0;
  for (std::size_t i = 0; i < p.size(); ++i) kl += std::exp(p[i] - p_sum) * ((p[i] - p_sum) - (q[i] - q_sum));
  return std::max(0.0, kl);
}

}  // namespace

ShadowModel::ShadowModel(std::unique_ptr<LoadedModel> primary, std::unique_ptr<LoadedModel> shadow,
                         ShadowOptions options)
    : primary_(std::move(primary)), shadow_(std::move(shadow)), options_(options) {
  if (!(options_.rate >= 0 && options_.rate <= 1)) {
    throw Error(ErrorCode::kUsage, "the rate of shadowed steps must be 0 to 1", "--shadow-rate");
  }
  const engine::ModelShape &a = primary_->shape(), &b = shadow_->shape();
  bool alike = primary_->executors().size() == 1 && shadow_->executors().size() == 1 && a.vocab_size == b.vocab_size &&
               a.groups.size() == b.groups.size() && primary_->page_size() == shadow_->page_size();
  for (std::uint32_t g = 0; alike && g < a.groups.size(); ++g) alike = primary_->pages(g) == shadow_->pages(g);
  if (!alike) {
    throw Error(ErrorCode::kUsage, "the shadow can't have the same KV pages", "--shadow",
                "choose a device that shares a page size, and no split of phases");
  }
}

std::uint32_t ShadowModel::max_step_tokens() const {
  return std::min(primary_->max_step_tokens(), shadow_->max_step_tokens());
}

std::uint32_t ShadowModel::max_step_sequences() const {
  return std::min(primary_->max_step_sequences(), shadow_->max_step_sequences());
}

std::int32_t ShadowModel::acquire_rope_row(std::uint64_t planned_length) {
  const std::int32_t row = primary_->acquire_rope_row(planned_length);
  try {
    const std::int32_t other = shadow_->acquire_rope_row(planned_length);
    if (other == row) return row;
    shadow_->release_rope_row(other);
    throw Error(ErrorCode::kInternal, "the shadow numbers its rope tables differently");
  } catch (...) {
    primary_->release_rope_row(row);
    throw;
  }
}

void ShadowModel::release_rope_row(std::int32_t row) noexcept {
  primary_->release_rope_row(row);
  shadow_->release_rope_row(row);
}

bool ShadowModel::chosen(std::uint64_t step) const {
  return !gone_ && sample::uniform(options_.seed, step) < options_.rate;
}

void ShadowModel::copy_pages(const sched::Step& step) {
  const std::size_t per_group = std::size_t{step.sequences()} * step.max_pages;
  for (std::uint32_t g = 0; g < step.groups; ++g) {
    const auto begin = step.page_table.begin() + static_cast<std::ptrdiff_t>(g * per_group);
    std::vector<std::int32_t> pages(begin, begin + static_cast<std::ptrdiff_t>(per_group));
    std::sort(pages.begin(), pages.end());
    pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
    std::erase(pages, -1);
    copy_kv_pages(primary_->executor(), shadow_->executor(), g, pages);
  }
}

engine::Logits ShadowModel::forward(const sched::Step& step) {
  const std::uint64_t number = step_++;
  engine::Logits logits = primary_->forward(step);
  {
    const std::lock_guard lock(mutex_);
    report_.steps = step_;
  }
  if (!chosen(number)) return logits;
  try {
    copy_pages(step);  // with what the step has written; the shadow writes it again for itself
    compare(step, logits, shadow_->forward(step));
  } catch (const std::exception& failure) {
    gone_ = dynamic_cast<const DeviceLost*>(&failure) != nullptr;
    const std::lock_guard lock(mutex_);
    if (++report_.failures == 1) log(LogLevel::kWarning, "shadow", "a step could not be shadowed: {}", failure.what());
    report_.failure = failure.what();
  }
  return logits;
}

void ShadowModel::compare(const sched::Step& step, const engine::Logits& got, const engine::Logits& want) {
  double largest = 0, kl = 0;
  std::uint64_t ties = 0;
  std::vector<Disagreement> found;
  for (std::uint32_t r = 0; r < got.rows(); ++r) {
    const auto mine = got.row(r), theirs = want.row(r);
    for (std::size_t i = 0; i < mine.size(); ++i) largest = std::max(largest, std::fabs(mine[i] - theirs[i]));
    kl += kl_divergence(theirs, mine);
    const TokenId a = best_of(mine), b = best_of(theirs);
    if (a == b) continue;
    const double margin = theirs[static_cast<std::size_t>(b)] - theirs[static_cast<std::size_t>(a)];
    if (margin <= options_.tie) {
      ++ties;
      continue;
    }
    Disagreement& each = found.emplace_back();
    each = {step_ - 1, step.pos[static_cast<std::size_t>(step.out_row[r])], a, b, margin, {}, 0};
    examine(step, r, each);
  }
  const std::lock_guard lock(mutex_);
  ++report_.sampled;
  report_.rows += got.rows();
  report_.ties += ties;
  report_.disagreements += found.size();
  report_.largest_difference = std::max(report_.largest_difference, largest);
  report_.kl_sum += kl;
  for (Disagreement& each : found) {
    log(LogLevel::kWarning, "shadow", "token {} where the shadow has {} by {:.3g}; {} differs most, by {:.2g}",
        each.got, each.want, each.margin, each.op.empty() ? "no op known" : each.op, each.error);
    if (!each.op.empty()) ++report_.by_op[each.op];
    report_.latest.push_back(std::move(each));
    if (report_.latest.size() > options_.keep) report_.latest.pop_front();
  }
}

void ShadowModel::examine(const sched::Step& step, std::uint32_t row, Disagreement& out) {
  const auto after = std::upper_bound(step.q_start.begin(), step.q_start.end(), step.out_row[row]);
  const auto sequence = static_cast<std::uint32_t>(after - step.q_start.begin()) - 1;
  std::vector<std::uint32_t> rows;
  const sched::Step part = part_of_step(step, sequence, sequence + 1, rows);
  if (part.tokens() > kMostTokens) return;
  OpDifference worst = compare_ops(*primary_, *shadow_, part);
  out.op = std::move(worst.op);
  out.error = worst.error;
}

ShadowReport ShadowModel::report() const {
  const std::lock_guard lock(mutex_);
  return report_;
}

}  // namespace backplane::models
