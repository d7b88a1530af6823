#include "tools/lab/lab.h"

#include <fmt/format.h>

#include <chrono>

#include "core/base/error.h"
#include "tools/lab/experiments.h"
#include "tools/lab/sections.h"

namespace backplane::lab {
namespace {

constexpr std::uint32_t kMostRequests = 256;  // of the trace

Json model_json(const LabRun& run, const StepWork& work) {
  const models::DecoderSpec& spec = run.file.spec();
  return {{"name", run.file.container().path().filename().string()},
          {"architecture", spec.architecture},
          {"parameters", run.file.parameters()},
          {"layers", spec.layers.size()},
          {"hidden", spec.hidden},
          {"heads", spec.heads},
          {"kv_heads", spec.kv_heads},
          {"key_size", spec.head_dim},
          {"value_size", spec.value_dim},
          {"vocabulary", spec.vocab_size},
          {"max_context", spec.max_context},
          {"weight_bytes", run.memory.weights},
          {"activation_type", dtype_name(run.model.executor().activation_type())},
          {"kv_type", dtype_name(run.model.kv_type())},
          {"kv_bytes_per_token", figure(work.kv_bytes_per_token())},
          {"flops_per_token", figure(work.token_flops())},
          {"flops_per_row_of_logits", figure(work.row_flops())}};
}

Json fallbacks_json(models::LoadedModel& model) {
  Json list = Json::array();
  for (const device::Fallback& entry : model.fallbacks()) {
    list.push_back({{"op", entry.op},
                    {"device", entry.device},
                    {"steps", entry.shape},
                    {"count", entry.count},
                    {"seconds", figure(entry.seconds)},
                    {"reason", entry.reason}});
  }
  return list;
}

// Runs an experiment unless there is no room for it.
template <class Run>
Json attempt(bool room, const std::string& why_not, Run&& run) {
  if (!room) return {{"skipped", why_not}};
  try {
    return run();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCapacity) throw;
    return {{"skipped", error.what()}};
  }
}

Json experiments_json(const LabRun& run, Setup setup, const Sizes& sizes) {
  const std::string small = fmt::format("the context of {} is too small; it takes {}",
                                        count_text(setup.room.context, "token", "tokens"), kLeastContext);
  const std::string narrow = fmt::format("{}, or the device takes too few tokens ({}) or sequences ({}) in a step",
                                         small, setup.room.step_tokens, setup.room.sequences);
  const auto next = [&](const char* title) -> const Setup& {
    setup.progress = run.progress ? run.progress(title) : Progress([](std::uint64_t, std::uint64_t) {});
    return setup;
  };
  const auto& [cache, phases, padding, batching, logits, context] = sizes;
  const bool room = setup.room.context >= kLeastContext;
  Json out;
  out["cache"] = attempt(room, small, [&] { return run_cache(next("with and without the cache"), cache); });
  out["phases"] = attempt(room, small, [&] { return run_phases(next("prefill and decode"), phases); });
  out["context"] = attempt(room, small, [&] { return run_context(next("longer contexts"), context); });
  out["padding"] = attempt(padding.rows > 0, room ? narrow.substr(small.size() + 5) : small,
                           [&] { return run_padding(next("padded and ragged"), padding); });
  out["logits"] = attempt(room, small, [&] { return run_logits(next("all logits and the last"), logits); });
  out["batching"] = attempt(batching.requests > 0, narrow, [&] { return run_batching(next("batching"), batching); });
  return out;
}

}  // namespace

Json run_lab(const LabRun& run) {
  const auto start = std::chrono::steady_clock::now();
  const StepWork work(run.file, run.device, run.model.kv_type());
  const Prompts prompts(run.tokenizer, run.file.spec().vocab_size, run.seed);
  const Trace trace = run.trace ? *run.trace : random_trace(kMostRequests, run.seed);
  const Room room = measure_room(run.model);
  Setup setup{
      .model = run.model, .work = work, .prompts = prompts, .trace = trace, .speed = {}, .room = room, .progress = {}};
  const bool runs = room.context >= kLeastContext;
  if (runs) setup.speed = measure_speed(run.model, prompts, room);
  Json report = {{"model", model_json(run, work)},
                 {"device", run.device_name},
                 {"threads", run.threads},
                 {"date", run.date},
                 {"quick", run.quick},
                 {"seed", run.seed},
                 {"context", room.context},
                 {"probe", {{"prompt_token_s", figure(setup.speed.token_s)}, {"step_s", figure(setup.speed.step_s)}}}};
  report["experiments"] = experiments_json(run, setup, choose_sizes(setup.speed, room, run.quick));
  for (const Section& section : sections(report)) {
    if (section.skipped.empty()) report["experiments"][section.id]["findings"] = section.findings;
  }
  report["fallbacks"] = fallbacks_json(run.model);
  report["seconds"] = figure(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return report;
}

}  // namespace backplane::lab
