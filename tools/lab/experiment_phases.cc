// Prefill against decode.
#include "tools/lab/experiments.h"
#include "tools/lab/statistics.h"

namespace backplane::lab {
namespace {

Json phase_json(const Work& work, double seconds, std::uint64_t tokens) {
  const auto count = static_cast<double>(tokens);
  return {{"seconds", figure(seconds)},
          {"seconds_per_token", figure(seconds / count)},
          {"flops", figure(work.flops)},
          {"bytes", figure(work.bytes)},
          {"flops_per_token", figure(work.flops / count)},
          {"bytes_per_token", figure(work.bytes / count)},
          {"intensity", figure(work.intensity())},
          {"flops_per_s", figure(work.flops / seconds)},
          {"bytes_per_s", figure(work.bytes / seconds)}};
}

std::vector<double> decode_seconds(const engine::Generation& done) {
  std::vector<double> seconds;
  for (const engine::StepRecord& step : done.steps) {
    if (step.n_decode > 0) seconds.push_back(step.seconds);
  }
  return seconds;
}

}  // namespace

// All lengths in turn, and that again and again: what disturbs the machine for a while spoils one time of each only.
Json run_phases(const Setup& setup, const PhaseSizes& sizes) {
  engine::Engine engine(setup.model, measuring(1, setup.room));
  std::vector<std::vector<double>> first(sizes.prompts.size());
  std::vector<double> further;
  std::uint64_t run = 0;
  for (std::uint32_t i = 0; i < sizes.repeats; ++i) {
    for (std::size_t j = 0; j < sizes.prompts.size(); ++j) {
      setup.progress(run++, sizes.prompts.size() * sizes.repeats);
      const bool last = i + 1 == sizes.repeats && j + 1 == sizes.prompts.size();
      const engine::Generation done =
          generate_greedy(engine, setup.prompts.ids(sizes.prompts[j]), 1 + (last ? sizes.decodes : 0));
      first[j].push_back(done.prefill_s);
      if (last) further = decode_seconds(done);
    }
  }
  Json prefill = Json::array();
  for (std::size_t j = 0; j < sizes.prompts.size(); ++j) {
    const std::uint32_t prompt = sizes.prompts[j];
    Json row = {{"tokens", prompt}};
    row.update(phase_json(setup.work.of({.past = 0, .tokens = prompt, .rows = 1}), fastest(first[j]), prompt));
    prefill.push_back(std::move(row));
  }
  const std::uint64_t middle = sizes.prompts.back() + sizes.decodes / 2;  // of the contexts that the steps had
  Json decode = {{"steps", further.size()}, {"context", middle}};
  decode.update(phase_json(setup.work.of({.past = middle, .tokens = 1, .rows = 1}), fastest(further), 1));
  return {{"repeats", sizes.repeats}, {"prefill", std::move(prefill)}, {"decode", std::move(decode)}};
}

}  // namespace backplane::lab
