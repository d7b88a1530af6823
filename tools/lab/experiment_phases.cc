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

Json run_phases(const Setup& setup, const PhaseSizes& sizes) {
  engine::Engine engine(setup.model, measuring(1, setup.room));
  std::uint64_t run = 0;
  const std::uint64_t runs = sizes.prompts.size() * sizes.repeats;
  Json prefill = Json::array(), decode;
  for (const std::uint32_t prompt : sizes.prompts) {
    const bool last = prompt == sizes.prompts.back();
    std::vector<double> first, further;
    for (std::uint32_t i = 0; i < sizes.repeats; ++i) {
      setup.progress(run++, runs);
      const std::uint32_t decodes = last && i + 1 == sizes.repeats ? sizes.decodes : 0;
      const engine::Generation done = generate_greedy(engine, setup.prompts.ids(prompt), 1 + decodes);
      first.push_back(done.prefill_s);
      further = decode_seconds(done);
    }
    Json row = {{"tokens", prompt}};
    row.update(phase_json(setup.work.of({.past = 0, .tokens = prompt, .rows = 1}), median(first), prompt));
    prefill.push_back(std::move(row));
    if (!last) continue;
    const std::uint64_t middle = prompt + sizes.decodes / 2;  // of the contexts that the steps had
    decode = {{"steps", further.size()}, {"context", middle}};
    decode.update(phase_json(setup.work.of({.past = middle, .tokens = 1, .rows = 1}), median(further), 1));
  }
  return {{"repeats", sizes.repeats}, {"prefill", std::move(prefill)}, {"decode", std::move(decode)}};
}

}  // namespace backplane::lab
