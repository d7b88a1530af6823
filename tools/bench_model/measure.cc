#include "tools/bench_model/measure.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include "core/base/error.h"
#include "core/engine/session.h"
#include "tools/signals.h"

namespace backplane::bench {
namespace {

// One step of the engine: how long it took, what came of it, and what the model ran in it.
struct Stepped {
  double seconds = 0;
  std::vector<engine::Event> events;
  engine::StepRecord record;
};

Stepped step(engine::Engine& engine) {
  tools::CatchInterrupts::check("measuring");
  const std::uint64_t before = engine.steps().steps_run();
  const auto start = std::chrono::steady_clock::now();
  std::vector<engine::Event> events = engine.step();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const engine::Event& event : events) {
    if (event.error) throw *event.error;
  }
  Stepped done{.seconds = seconds, .events = std::move(events), .record = {}};
  if (engine.steps().steps_run() != before) done.record = engine.steps().records().back();
  return done;
}

double run_prefill(engine::Engine& engine, const Bench& bench, const Case& what) {
  engine.submit(lab::greedy_request(bench.prompts.ids(what.tokens), 1));
  double seconds = 0;
  while (!engine.idle()) seconds += step(engine).seconds;
  return seconds;
}

// The sequences of a batch. Prompts come one after another where one step can't hold them, so each sequence is a
// conversation: what has its prompt in the cache waits there for the others, and all begin to reply in the same step.
class Batch {
 public:
  Batch(engine::Engine& engine, const Bench& bench, const Case& what) : engine_(engine), what_(what) {
    for (std::uint32_t i = 0; i < what.batch; ++i) {
      prompts_.push_back(bench.prompts.ids(what.prompt() + 1, i));
      sequences_.emplace_back(engine);
    }
  }

  // Where the cache has the prompts still, all but the last token of each is taken from there. A request is canceled
  // with its first token. It could have become as long as the reply's, since what some models put into the cache
  // depends on that.
  void fill() {
    for (std::uint32_t i = 0; i < what_.batch; ++i) {
      std::vector<TokenId> prompt = prompts_[i];
      prompt.pop_back();
      sequences_[i].submit(lab::greedy_request(std::move(prompt), what_.tokens + 1));
    }
    while (!engine_.idle()) {
      const Stepped done = step(engine_);
      for (const engine::Event& event : done.events) {
        if (event.token >= 0) engine_.cancel(event.request);
      }
    }
  }

  // After fill(): seconds of its steps. Nothing is under way at the end.
  double reply() {
    for (std::uint32_t i = 0; i < what_.batch; ++i) {
      sequences_[i].submit(lab::greedy_request(prompts_[i], what_.tokens));
    }
    double seconds = 0;
    std::uint64_t depth = what_.prompt();
    for (; !engine_.idle(); ++depth) {
      const Stepped done = step(engine_);
      const engine::StepRecord& record = done.record;
      if (record.n_decode != what_.batch || record.tokens != what_.batch || record.cached != what_.batch * depth) {
        throw Error(ErrorCode::kCapacity, "the batch doesn't run at once", "", "use a smaller --batch");
      }
      seconds += done.seconds;
    }
    return seconds;
  }

 private:
  engine::Engine& engine_;
  const Case& what_;
  std::vector<std::vector<TokenId>> prompts_;  // with the token that the reply's first step computes
  std::deque<engine::Session> sequences_;
};

// `warm`: replies twice, since a device that records steps does so when one like it comes again.
double run_decode(engine::Engine& engine, const Bench& bench, const Case& what, device::OpTimes* times, bool warm) {
  Batch batch(engine, bench, what);
  batch.fill();
  if (warm) {
    batch.reply();
    batch.fill();
  }
  if (times) times->clear();
  return batch.reply();
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

device::CaptureCounts captures(models::LoadedModel& model) {
  device::CaptureCounts sum;
  for (device::Executor* executor : model.executors()) {
    const device::CaptureCounts counts = executor->captures();
    sum.recorded += counts.recorded;
    sum.launched += counts.launched;
  }
  return sum;
}

}  // namespace

std::uint32_t Case::prompt() const { return kind == Kind::kPrefill ? tokens : std::max(1u, depth); }

std::uint32_t Case::length() const { return kind == Kind::kPrefill ? tokens + 1 : prompt() + tokens + 1; }

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

double run_once(const Bench& bench, const Case& what, device::OpTimes* times, bool warm) {
  engine::Engine engine(bench.model, lab::measuring(what.batch, bench.room));
  const TimeOps timing(bench.model, times);
  return what.kind == Kind::kPrefill ? run_prefill(engine, bench, what) : run_decode(engine, bench, what, times, warm);
}

std::vector<Measured> measure(const Bench& bench, const std::vector<Case>& cases, std::uint32_t repeats,
                              const std::function<void(std::uint64_t done, std::uint64_t total)>& progress) {
  std::vector<Measured> all;
  for (const Case& what : cases) all.push_back({.what = what, .seconds = {}, .steps_recorded = 0, .steps_launched = 0});
  for (std::uint32_t round = 0; round <= repeats; ++round) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      progress(round * all.size() + i, (repeats + std::uint64_t{1}) * all.size());
      const device::CaptureCounts before = captures(bench.model);
      const double seconds = run_once(bench, all[i].what, nullptr, round == 0);
      if (round == 0) continue;
      const device::CaptureCounts after = captures(bench.model);
      all[i].seconds.push_back(seconds);
      all[i].steps_recorded += after.recorded - before.recorded;
      all[i].steps_launched += after.launched - before.launched;
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
