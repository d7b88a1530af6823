#include "core/engine/generation.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace backplane::engine {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void collect(Generation& out, Event& event) {
  if (event.token >= 0) {
    out.ids.push_back(event.token);
    if (event.logprob) {
      out.logprobs.push_back(*event.logprob);
      out.top.push_back(std::move(event.top));
    }
  }
  out.text += event.text;
  out.finish = event.finish;
  out.error = std::move(event.error);
}

// The records of the steps that ran since there were `before`.
void collect_steps(Generation& out, const StepRunner& steps, std::uint64_t before) {
  const auto& records = steps.records();
  const auto n = static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(steps.steps_run() - before, records.size()));
  out.steps.insert(out.steps.end(), records.end() - n, records.end());
}

}  // namespace

void require_idle(const Engine& engine) {
  if (!engine.idle()) throw Error(ErrorCode::kUsage, "the engine has other requests under way");
}

Generation generate(Engine& engine, Request request, const TokenCallback& on_event,
                    const std::atomic<bool>* interrupt) {
  require_idle(engine);
  if (request.n != 1) throw Error(ErrorCode::kUsage, "several answers were asked for where one is taken");
  return follow(engine, engine.submit(std::move(request)), on_event, interrupt);
}

Generation follow(Engine& engine, RequestId id, const TokenCallback& on_event, const std::atomic<bool>* interrupt) {
  Generation out;
  auto start = Clock::now();
  bool first = true;
  try {
    while (out.finish == FinishReason::kNone) {
      if (interrupt && interrupt->load()) engine.cancel(id);
      const std::uint64_t before = engine.steps().steps_run();
      std::vector<Event> events = engine.step();
      collect_steps(out, engine.steps(), before);
      for (Event& event : events) {
        if (event.request != id) continue;
        if (std::exchange(first, false)) {
          out.prefill_s = seconds_since(start);
          start = Clock::now();
        }
        if (on_event) on_event(event);
        collect(out, event);
      }
    }
  } catch (...) {
    engine.cancel(id);
    engine.step();  // takes the event of the cancellation
    throw;
  }
  out.decode_s = seconds_since(start);
  return out;
}

}  // namespace backplane::engine
