// From rows of logits to tokens and log-probabilities, on several threads where that pays.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/base/thread_pool.h"
#include "core/sample/logprobs.h"
#include "core/sample/sampler.h"

namespace backplane::engine {

// One row and what is wanted of it.
struct Draw {
  std::span<const double> logits;            // outlive the draw
  const sample::Sampler* sampler = nullptr;  // draws the token; null: it is known, being one of a prompt
  std::optional<std::uint32_t> top = {};     // set: log-probabilities, the token's and those of so many of the best

  // What came of it: all but the error are valid without one.
  TokenId token = -1;
  sample::TokenReport report = {};
  std::optional<Error> error = {};
};

// Each draw is a function of its own row and sampler: the number of threads and what else is drawn change nothing.
class RowDrawer {
 public:
  // `pool` outlives this. Null: one of its own with all processors, started with the first rows that are worth it.
  explicit RowDrawer(ThreadPool* pool) : pool_(pool) {}

  // Rows are of one length. No two share a sampler. Throws what isn't an Error, such as std::bad_alloc.
  void run(std::span<Draw> draws);

  // How many rows of this many logits a thread must have to be worth waking.
  static std::uint64_t grain(std::size_t vocabulary);

 private:
  ThreadPool* pool_;
  std::unique_ptr<ThreadPool> own_;
};

}  // namespace backplane::engine
