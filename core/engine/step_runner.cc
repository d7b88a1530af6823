#include "core/engine/step_runner.h"

#include <fmt/format.h>

#include <chrono>
#include <new>
#include <numeric>

#include "core/base/error.h"

namespace backplane::engine {
namespace {

// What models/ and the standard library may throw becomes an Error, so that callers handle one type.
Logits forward(Model& model, const sched::Step& step) {
  try {
    return model.forward(step);
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
  Logits logits = forward(model_, step);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  const std::uint32_t vocabulary = model_.shape().vocab_size;
  if (logits.vocab_size != vocabulary || logits.values.size() != std::size_t{step.rows()} * vocabulary) {
    throw Error(ErrorCode::kInternal, fmt::format("the model gave {} logits for {} rows of {}", logits.values.size(),
                                                  step.rows(), vocabulary));
  }
  const std::uint64_t in_cache = std::accumulate(step.kv_len.begin(), step.kv_len.end(), std::uint64_t{0});
  if (keep_ > 0 && records_.size() == keep_) records_.pop_front();
  ++steps_run_;
  if (keep_ > 0) {
    records_.push_back({.tokens = step.tokens(),
                        .sequences = step.sequences(),
                        .rows = step.rows(),
                        .n_decode = step.n_decode,
                        .cached = in_cache - step.tokens(),
                        .seconds = taken.count()});
  }
  return logits;
}

}  // namespace backplane::engine
