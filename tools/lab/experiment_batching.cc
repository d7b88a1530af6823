// No batching, static batching, continuous batching on one request trace.
#include <algorithm>

#include "tools/lab/experiments.h"
#include "tools/lab/replay.h"
#include "tools/lab/statistics.h"

namespace backplane::lab {
namespace {

constexpr std::size_t kMostSamples = 400;  // of the occupancy, in the report

Json latency_json(const std::vector<double>& seconds) {
  return {{"p50", figure(median(seconds))},
          {"p95", figure(quantile(seconds, 0.95))},
          {"p99", figure(quantile(seconds, 0.99))},
          {"worst", figure(*std::max_element(seconds.begin(), seconds.end()))}};
}

// Where there are too many samples, every n-th; the last one always.
Json occupancy_json(const std::vector<Occupancy>& samples) {
  const std::size_t every = samples.size() / kMostSamples + 1;
  Json list = Json::array();
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (i % every != 0 && i + 1 != samples.size()) continue;
    list.push_back({{"at_s", figure(samples[i].at_s)}, {"sequences", samples[i].sequences}});
  }
  return list;
}

Json policy_json(const Replayed& replayed) {
  std::vector<double> first, whole;
  std::uint64_t tokens = 0;
  Json requests = Json::array();
  for (const Served& served : replayed.requests) {
    first.push_back(served.first_token_s - served.arrival_s);
    whole.push_back(served.end_s - served.arrival_s);
    tokens += served.ids.size();
    requests.push_back({{"first_token_s", figure(first.back())}, {"total_s", figure(whole.back())}});
  }
  return {{"seconds", figure(replayed.end_s)},
          {"busy_s", figure(replayed.busy_s)},
          {"steps", replayed.steps},
          {"generated_tokens", tokens},
          {"tokens_per_s", figure(static_cast<double>(tokens) / replayed.end_s)},
          {"mean_occupancy", figure(replayed.seat_seconds / replayed.busy_s)},
          {"first_token_s", latency_json(first)},
          {"total_s", latency_json(whole)},
          {"requests", std::move(requests)},
          {"occupancy", occupancy_json(replayed.occupancy)}};
}

// Requests that got the same tokens in all runs.
std::uint64_t equal_requests(const std::vector<Replayed>& runs) {
  std::uint64_t equal = 0;
  for (std::size_t i = 0; i < runs.front().requests.size(); ++i) {
    const std::vector<TokenId>& ids = runs.front().requests[i].ids;
    equal += std::all_of(runs.begin(), runs.end(), [&](const Replayed& run) { return run.requests[i].ids == ids; });
  }
  return equal;
}

}  // namespace

Json run_batching(const Setup& setup, const BatchingSizes& sizes) {
  const ScaledTrace trace = scale_trace(setup.trace, sizes, setup.speed, setup.room);
  std::uint64_t prompts = 0, replies = 0, done = 0;
  Json requests = Json::array();
  for (const TraceRequest& request : trace.requests) {
    prompts += request.prompt;
    replies += request.generated;
    requests.push_back({{"arrival_s", figure(request.arrival_s)},
                        {"prompt_tokens", request.prompt},
                        {"generated_tokens", request.generated}});
  }
  std::vector<Replayed> runs;  // none, static, continuous, and again: what disturbs the machine doesn't choose a victim
  for (std::uint32_t turn = 0; turn < sizes.turns; ++turn) {
    for (const Policy policy : {Policy::kOne, Policy::kStatic, Policy::kContinuous}) {
      runs.push_back(replay(setup, trace.requests, policy, sizes.seats,
                            [&] { setup.progress(++done, 3 * replies * sizes.turns); }));
    }
  }
  const auto faster = [&](std::size_t policy) {
    std::size_t best = policy;
    for (std::size_t i = policy; i < runs.size(); i += 3) best = runs[i].end_s < runs[best].end_s ? i : best;
    return policy_json(runs[best]);
  };
  const std::uint64_t equal = equal_requests(runs);
  return {{"trace", setup.trace.source},
          {"turns", sizes.turns},
          {"seats", sizes.seats},
          {"prompt_tokens", prompts},
          {"generated_tokens", replies},
          {"prompt_scale", figure(trace.prompt_scale)},
          {"reply_scale", figure(trace.reply_scale)},
          {"time_scale", figure(trace.time_scale)},
          {"equal_requests", equal},
          {"equal_tokens", equal == trace.requests.size()},
          {"none", faster(0)},
          {"static", faster(1)},
          {"continuous", faster(2)},
          {"requests", std::move(requests)}};
}

}  // namespace backplane::lab
