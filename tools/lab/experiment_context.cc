// The time of a decode step against the length of the context.
#include "core/engine/session.h"
#include "tools/lab/experiments.h"
#include "tools/lab/statistics.h"

namespace backplane::lab {
namespace {

// Of one length, in both passes.
struct Measured {
  std::uint32_t length = 0;
  std::vector<double> seconds;
};

Json length_json(const Setup& setup, const Measured& measured, double context, std::uint64_t past) {
  const Work work = setup.work.of({.past = past, .tokens = 1, .rows = 1});
  return {{"context", figure(context)},
          {"seconds", figure(fastest(measured.seconds))},
          {"median_s", figure(median(measured.seconds))},
          {"attention_flops", figure(setup.work.attention_flops(past, 1))},
          {"flops", figure(work.flops)},
          {"bytes", figure(work.bytes)}};
}

// Up to the longest and down again, so that a machine that becomes slower doesn't look like a longer context. Each
// prompt is a beginning of the longest one: on the way up only what is new is computed, on the way down all is there.
std::vector<Measured> measure(const Setup& setup, const ContextSizes& sizes) {
  engine::Engine engine(setup.model, measuring(1, setup.room));
  engine::Session session(engine);
  std::vector<Measured> all;
  for (const std::uint32_t length : sizes.lengths) all.push_back({length, {}});
  std::uint64_t done = 0;
  const auto visit = [&](Measured& measured) {
    const auto on_event = [&](const engine::Event&) { setup.progress(done++, 2 * all.size() * (sizes.steps + 1)); };
    const engine::Generation turn =
        session.generate(greedy_request(setup.prompts.ids(measured.length), sizes.steps + 1), on_event);
    if (turn.error) throw *turn.error;
    for (std::size_t i = turn.steps.size() - sizes.steps; i < turn.steps.size(); ++i) {  // behind the prompt's
      measured.seconds.push_back(turn.steps[i].seconds);
    }
  };
  for (auto measured = all.begin(); measured != all.end(); ++measured) visit(*measured);
  for (auto measured = all.rbegin(); measured != all.rend(); ++measured) visit(*measured);
  return all;
}

}  // namespace

Json run_context(const Setup& setup, const ContextSizes& sizes) {
  Json lengths = Json::array();
  std::vector<Point> points;
  for (const Measured& measured : measure(setup, sizes)) {
    // The steps see length + 1, length + 2, ... tokens; the middle one stands for them.
    const double context = measured.length + (sizes.steps + 1) / 2.0;
    points.emplace_back(context, fastest(measured.seconds));
    lengths.push_back(length_json(setup, measured, context, measured.length + sizes.steps / 2));
  }
  return {{"steps_at_each", 2 * sizes.steps},
          {"smallest_window", setup.work.smallest_window()},
          {"kv_bytes_per_token", figure(setup.work.kv_bytes_per_token())},
          {"attention_flops_per_token", figure(setup.work.attention_flops_per_key())},
          {"fit", fit_json(points)},
          {"lengths", std::move(lengths)}};
}

}  // namespace backplane::lab
