// Runs steps on the model and remembers those that really ran.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "core/engine/model.h"
#include "core/sched/step.h"

namespace backplane::engine {

// A step that the model has executed.
struct StepRecord {
  std::uint32_t tokens = 0;
  std::uint32_t sequences = 0;
  std::uint32_t rows = 0;      // of logits
  std::uint32_t n_decode = 0;  // sequences that decoded
  std::uint64_t cached = 0;    // tokens of its sequences that were in the KV cache before and not computed again
  double seconds = 0;          // of the model's work
};

// One thread at a time.
class StepRunner {
 public:
  // Keeps the latest `keep` records. `model` must outlive this.
  StepRunner(Model& model, std::size_t keep) : model_(model), keep_(keep) {}

  // Throws Error, also when the model gave back other logits than were asked for. A step that failed leaves no record.
  Logits run(const sched::Step& step);
  // The same for steps that are picked from, see Model::begin_pick. `step` stays until its end.
  void begin(const sched::Step& step, std::span<const std::int32_t> targets);
  std::vector<Pick> end();
  void skip();  // ends the earliest one, whose picks nobody wants; no record
  void abandon() noexcept;

  Model& model() const { return model_; }
  const std::deque<StepRecord>& records() const { return records_; }  // oldest first
  std::uint64_t steps_run() const { return steps_run_; }              // including those no longer in records()

 private:
  struct UnderWay {
    const sched::Step* step;
    std::chrono::steady_clock::time_point begun;
  };
  void remember(const sched::Step& step, double seconds);

  Model& model_;
  std::size_t keep_;
  std::deque<UnderWay> under_way_;                  // oldest first
  std::chrono::steady_clock::time_point last_end_;  // of one that was begun
  std::deque<StepRecord> records_;
  std::uint64_t steps_run_ = 0;
};

}  // namespace backplane::engine
