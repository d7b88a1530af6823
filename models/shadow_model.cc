#include "models/shadow_model.h"

#include <fmt/format.h>

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
constexpr std::uint32_t kMostFailures = 3;  // in a row, of a device that isn't lost

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
    : primary_(std::move(primary)),
      shadow_(std::move(shadow)),
      options_(std::move(options)),
      record_(options_.record ? options_.record : std::make_shared<ShadowRecord>()),
      max_step_tokens_(std::min(primary_->max_step_tokens(), shadow_->max_step_tokens())),
      max_step_sequences_(std::min(primary_->max_step_sequences(), shadow_->max_step_sequences())) {
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

std::int32_t ShadowModel::acquire_rope_row(std::uint64_t planned_length) {
  const std::int32_t row = primary_->acquire_rope_row(planned_length);
  if (!shadow_) return row;
  try {
    if (shadow_->acquire_rope_row(planned_length) == row) return row;
    throw Error(ErrorCode::kInternal, "the shadow numbers its rope tables differently");
  } catch (const std::exception& failure) {  // its rows are not the primary's any more
    shadow_.reset();
    record_->add_failure(failure.what(), true);
  }
  return row;
}

void ShadowModel::release_rope_row(std::int32_t row) noexcept {
  primary_->release_rope_row(row);
  if (shadow_) shadow_->release_rope_row(row);
}

bool ShadowModel::chosen(std::uint64_t step) const {
  return shadow_ && sample::uniform(options_.seed, step) < options_.rate;
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
    const std::lock_guard lock(record_->mutex_);
    record_->report_.steps = step_;
  }
  if (!chosen(number)) return logits;
  try {
    copy_pages(step);  // with what the step has written; the shadow writes it again for itself
    const engine::Logits want = shadow_->forward(step);
    failures_ = 0;
    compare(step, logits, want);
  } catch (const std::exception& failure) {
    note(failure);
  }
  return std::exchange(unsure_, false) ? primary_->forward(step) : std::move(logits);
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
  {
    const std::lock_guard lock(record_->mutex_);
    ShadowReport& report = record_->report_;
    ++report.sampled;
    report.rows += got.rows();
    report.ties += ties;
    report.largest_difference = std::max(report.largest_difference, largest);
    report.kl_sum += kl;
  }
  record(std::move(found));
}

void ShadowModel::record(std::vector<Disagreement> found) {
  const std::lock_guard lock(record_->mutex_);
  ShadowReport& report = record_->report_;
  for (Disagreement& each : found) {
    const bool first = report.disagreements == 0;  // a faulty device would fill the log
    log(first ? LogLevel::kWarning : LogLevel::kInfo, "shadow", "token {} where the shadow has {} by {:.3g}; {}{}",
        each.got, each.want, each.margin,
        each.op.empty() ? "no op known" : fmt::format("{} differs most, by {:.2g}", each.op, each.error),
        first ? "; more are only counted" : "");
    ++report.disagreements;
    if (!each.op.empty()) ++report.by_op[each.op];
    report.latest.push_back(std::move(each));
    if (report.latest.size() > options_.keep) report.latest.pop_front();
  }
}

void ShadowModel::examine(const sched::Step& step, std::uint32_t row, Disagreement& out) {
  const auto after = std::upper_bound(step.q_start.begin(), step.q_start.end(), step.out_row[row]);
  const auto sequence = static_cast<std::uint32_t>(after - step.q_start.begin()) - 1;
  std::vector<std::uint32_t> rows;
  const sched::Step part = part_of_step(step, sequence, sequence + 1, rows);
  if (part.tokens() > kMostTokens || !shadow_) return;
  try {
    OpDifference worst = compare_ops(*primary_, *shadow_, part);
    out.op = std::move(worst.op);
    out.error = worst.error;
  } catch (const std::exception& failure) {  // the disagreement stays one
    unsure_ = true;
    note(failure);
  }
}

void ShadowModel::note(const std::exception& failure) {
  const bool lost = dynamic_cast<const DeviceLost*>(&failure) != nullptr;
  const bool dropped = lost || ++failures_ == kMostFailures;
  if (dropped) shadow_.reset();
  record_->add_failure(failure.what(), dropped);
}

ShadowReport ShadowRecord::report() const {
  const std::lock_guard lock(mutex_);
  return report_;
}

void ShadowRecord::add_failure(const std::string& text, bool dropped) {
  const std::lock_guard lock(mutex_);
  if (dropped) {
    log(LogLevel::kWarning, "shadow", "{}; going on without a shadow", text);
  } else if (report_.failures == 0) {
    log(LogLevel::kWarning, "shadow", "a step could not be shadowed: {}", text);
  }
  ++report_.failures;
  report_.failure = text;
  report_.dropped |= dropped;
}

}  // namespace backplane::models
