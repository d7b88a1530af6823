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
  if (!event.prompt.empty()) out.prompt = std::move(event.prompt);
  out.text += event.text;
  out.finish = event.finish;
  out.error = std::move(event.error);
}

// The records of the steps that ran since there were `before`.
void collect_steps(std::vector<StepRecord>& out, const StepRunner& steps, std::uint64_t before) {
  const auto& records = steps.records();
  const auto n = static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(steps.steps_run() - before, records.size()));
  out.insert(out.end(), records.end() - n, records.end());
}

}  // namespace

void require_idle(const Engine& engine) {
  if (!engine.idle()) throw Error(ErrorCode::kUsage, "the engine has other requests under way");
}

void require_one_answer(const Request& request) {
  if (request.n != 1) throw Error(ErrorCode::kUsage, "several answers were asked for where one is taken");
}

Generation generate(Engine& engine, Request request, const TokenCallback& on_event,
                    const std::atomic<bool>* interrupt) {
  require_one_answer(request);
  return std::move(generate_all(engine, std::move(request), on_event, interrupt).front());
}

std::vector<Generation> generate_all(Engine& engine, Request request, const TokenCallback& on_event,
                                     const std::atomic<bool>* interrupt) {
  require_idle(engine);
  const std::uint32_t n = request.n;
  return follow(engine, engine.submit(std::move(request)), n, on_event, interrupt);
}

std::vector<Generation> follow(Engine& engine, RequestId id, std::uint32_t n, const TokenCallback& on_event,
                               const std::atomic<bool>* interrupt) {
  std::vector<Generation> answers(n);
  std::vector<StepRecord> steps;
  const auto start = Clock::now();
  try {
    for (std::uint32_t ended = 0; ended < n;) {
      if (interrupt && interrupt->load()) engine.cancel(id);
      const std::uint64_t before = engine.steps().steps_run();
      std::vector<Event> events = engine.step();
      collect_steps(steps, engine.steps(), before);
      for (Event& event : events) {
        if (event.request != id) continue;
        Generation& answer = answers.at(event.answer);
        if (answer.prefill_s == 0) answer.prefill_s = seconds_since(start);
        if (on_event) on_event(event);
        collect(answer, event);
        if (answer.finish == FinishReason::kNone) continue;
        answer.decode_s = seconds_since(start) - answer.prefill_s;
        ++ended;
      }
    }
  } catch (...) {
    engine.cancel(id);
    engine.step();  // takes the events of the cancellation
    throw;
  }
  for (Generation& answer : answers) answer.steps = steps;
  return answers;
}

}  // namespace backplane::engine
