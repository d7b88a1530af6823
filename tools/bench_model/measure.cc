#include "tools/bench_model/measure.h"

#include <algorithm>
#include <chrono>

#include "core/base/error.h"
#include "tools/signals.h"

namespace backplane::bench {
namespace {

// One step of the engine: how long it took, and what the model ran in it.
struct Stepped {
  double seconds = 0;
  engine::StepRecord record;
};

Stepped step(engine::Engine& engine) {
  tools::CatchInterrupts::check("measuring");
  const std::uint64_t before = engine.steps().steps_run();
  const auto start = std::chrono::steady_clock::now();
  const std::vector<engine::Event> events = engine.step();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const engine::Event& event : events) {
    if (event.error) throw *event.error;
  }
  Stepped done{.seconds = seconds, .record = {}};
  if (engine.steps().steps_run() != before) done.record = engine.steps().records().back();
  return done;
}

double run_prefill(engine::Engine& engine, const Bench& bench, const Case& what) {
  engine.submit(lab::greedy_request(bench.prompts.ids(what.tokens), 1));
  double seconds = 0;
  while (!engine.idle()) seconds += step(engine).seconds;
  return seconds;
}

// Only steps count in which all sequences decode: the prompts come before them, one after another where one step can't
// hold them, and nobody ends before the last step that counts.
double run_decode(engine::Engine& engine, const Bench& bench, const Case& what, device::OpTimes* times) {
  for (std::uint32_t i = 0; i < what.batch; ++i) {
    engine.submit(lab::greedy_request(bench.prompts.ids(what.prompt(), i), what.length() - what.prompt()));
  }
  double seconds = 0;
  for (std::uint32_t steps = 0; steps < what.tokens;) {
    if (engine.idle()) throw Error(ErrorCode::kCapacity, "the batch doesn't run at once", "", "use a smaller --batch");
    const Stepped done = step(engine);
    if (done.record.n_decode == what.batch && done.record.tokens == what.batch && done.record.cached > 0) {
      seconds += done.seconds;
      ++steps;
    } else if (times) {
      times->clear();
    }
  }
  return seconds;
}

// Sets the times of all executors, and nothing again.
class TimeOps {
 public:
  TimeOps(models::LoadedModel& model, device::OpTimes* times) : model_(model) { set(times); }
  ~TimeOps() { set(nullptr); }
  TimeOps(const TimeOps&) = delete;
  TimeOps& operator=(const TimeOps&) = delete;

 private:
  void set(device::OpTimes* times) {
    for (device::Executor* executor : model_.executors()) executor->time_ops(times);
  }
  models::LoadedModel& model_;
};

}  // namespace

std::uint32_t Case::prompt() const { return kind == Kind::kPrefill ? tokens : std::max(1u, depth); }

// A step that finishes prompts may leave others waiting, so the first ones are ahead by as many tokens.
std::uint32_t Case::length() const {
  return kind == Kind::kPrefill ? tokens + 1 : prompt() + tokens + (batch == 1 ? 1 : batch + 1);
}

lab::Work work_of(const lab::StepWork& work, const Case& what, std::uint32_t step_tokens) {
  if (what.kind == Kind::kPrefill) {
    lab::Work whole = work.of({.past = 0, .tokens = what.tokens, .rows = 1});
    whole.bytes += work.layer_bytes() * ((what.tokens - 1) / std::max(1u, step_tokens));  // again in each further step
    return whole;
  }
  const lab::Work one = work.of({.past = what.prompt() + what.tokens / 2, .tokens = 1, .rows = 1});
  const double shared = work.layer_bytes() + work.head_bytes(), batch = what.batch, steps = what.tokens;
  return {.flops = steps * batch * one.flops, .bytes = steps * (shared + batch * (one.bytes - shared))};
}

double run_once(const Bench& bench, const Case& what, device::OpTimes* times) {
  engine::Engine engine(bench.model, lab::measuring(what.batch, bench.room));
  const TimeOps timing(bench.model, times);
  return what.kind == Kind::kPrefill ? run_prefill(engine, bench, what) : run_decode(engine, bench, what, times);
}

std::vector<Measured> measure(const Bench& bench, const std::vector<Case>& cases, std::uint32_t repeats,
                              const std::function<void(std::uint64_t done, std::uint64_t total)>& progress) {
  std::vector<Measured> all;
  for (const Case& what : cases) all.push_back({.what = what, .seconds = {}});
  for (std::uint32_t round = 0; round <= repeats; ++round) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      progress(round * all.size() + i, (repeats + std::uint64_t{1}) * all.size());
      const double seconds = run_once(bench, all[i].what);
      if (round > 0) all[i].seconds.push_back(seconds);
    }
  }
  return all;
}

OpTable op_table(const Bench& bench, const Case& what) {
  OpTable table{.what = what, .seconds = 0, .ops = {}};
  table.seconds = run_once(bench, what, &table.ops);
  return table;
}

}  // namespace backplane::bench
