#include "core/engine/step_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <numeric>

#include "core/base/error.h"

namespace backplane::engine {
namespace {

// What models/ and the standard library may throw becomes an Error, so that callers handle one type.
template <class Function>
auto as_errors(const sched::Step& step, Function&& function) {
  try {
    return function();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kCapacity, "out of memory", fmt::format("a step of {} tokens", step.tokens()),
                "use a smaller context or fewer sequences");
  } catch (const std::exception& e) {
    throw Error(ErrorCode::kInternal, e.what(), fmt::format("a step of {} tokens", step.tokens()));
  }
}

}  // namespace

Logits StepRunner::run(const sched::Step& step) {
  const auto start = std::chrono::steady_clock::now();
  Logits logits = as_errors(step, [&] { return model_.forward(step); });
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  const std::uint32_t vocabulary = model_.shape().vocab_size;
  if (logits.vocab_size != vocabulary || logits.values.size() != std::size_t{step.rows()} * vocabulary) {
    throw Error(ErrorCode::kInternal, fmt::format("the model gave {} logits for {} rows of {}", logits.values.size(),
                                                  step.rows(), vocabulary));
  }
  remember(step, taken.count());
  return logits;
}

void StepRunner::remember(const sched::Step& step, double seconds) {
  const std::uint64_t in_cache = std::accumulate(step.kv_len.begin(), step.kv_len.end(), std::uint64_t{0});
  if (keep_ > 0 && records_.size() == keep_) records_.pop_front();
  ++steps_run_;
  if (keep_ > 0) {
    records_.push_back({.tokens = step.tokens(),
                        .sequences = step.sequences(),
                        .rows = step.rows(),
                        .n_decode = step.n_decode,
                        .cached = in_cache - step.tokens(),
                        .seconds = seconds});
  }
}

void StepRunner::begin(const sched::Step& step, std::span<const std::int32_t> targets) {
  const auto now = std::chrono::steady_clock::now();
  as_errors(step, [&] { model_.begin_pick(step, targets); });
  under_way_.push_back({&step, now});
}

// A step that was begun before the one before it had ended took the time since then.
std::vector<Pick> StepRunner::end() {
  const UnderWay first = under_way_.front();
  std::vector<Pick> picks = as_errors(*first.step, [&] { return model_.end_pick(); });
  under_way_.pop_front();
  if (picks.size() != first.step->rows()) {
    throw Error(ErrorCode::kInternal, fmt::format("the model picked {} of {} rows", picks.size(), first.step->rows()));
  }
  const auto now = std::chrono::steady_clock::now();
  remember(*first.step, std::chrono::duration<double>(now - std::max(first.begun, last_end_)).count());
  last_end_ = now;
  return picks;
}

void StepRunner::skip() {
  as_errors(*under_way_.front().step, [&] { return model_.end_pick(); });
  under_way_.pop_front();
  last_end_ = std::chrono::steady_clock::now();
}

void StepRunner::abandon() noexcept {
  model_.abandon_picks();
  under_way_.clear();
}

}  // namespace backplane::engine
