#include "tools/run_report.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/text/utf8.h"
#include "tools/json_lines.h"

namespace backplane::tools {
namespace {

using Json = nlohmann::ordered_json;
using engine::FinishReason;

Json token_text(const RunReport& report, TokenId id) {
  if (!report.tokenizer || static_cast<std::size_t>(id) >= report.tokenizer->vocab_size()) return {};
  return text::to_valid_utf8(report.tokenizer->token_bytes(id));
}

Json fallbacks(LoadedModel& loaded) {
  Json list = Json::array();
  for (const device::Fallback& entry : loaded.model->fallbacks()) {
    list.push_back({{"op", entry.op},
                    {"device", entry.device},
                    {"count", entry.count},
                    {"reason", entry.reason},
                    {"shape", entry.shape},
                    {"bytes_staged", entry.bytes_staged},
                    {"seconds", entry.seconds}});
  }
  return list;
}

Json step_list(const RunReport& report) {
  Json steps = Json::array();
  const engine::Generation& done = report.generation;
  for (std::size_t i = 0; i < done.logprobs.size() && i < done.ids.size(); ++i) {
    Json top = Json::array();
    for (const sample::TokenLogprob& each : done.top[i]) {
      top.push_back({{"id", each.id}, {"token", token_text(report, each.id)}, {"logprob", each.logprob}});
    }
    steps.push_back({{"id", done.ids[i]}, {"logprob", done.logprobs[i]}, {"top", std::move(top)}});
  }
  return steps;
}

std::string rate(std::uint64_t tokens, double seconds) {
  return seconds > 0 ? fmt::format("{:.1f} tokens/s", static_cast<double>(tokens) / seconds) : std::string("at once");
}

}  // namespace

std::optional<Error> error_of(const engine::Generation& generation) {
  if (generation.finish == FinishReason::kCanceled) {
    return Error(ErrorCode::kInterrupted, "interrupted", fmt::format("after {} tokens", generation.ids.size()),
                 "what was generated until then is complete");
  }
  if (generation.finish != FinishReason::kError) return std::nullopt;
  if (generation.error) return generation.error;
  return Error(ErrorCode::kInternal, "the generation failed without a reason");
}

nlohmann::ordered_json report_json(const RunReport& report) {
  const engine::Generation& done = report.generation;
  const std::optional<Error> error = error_of(done);
  Json steps = Json::array();
  for (const engine::StepRecord& step : done.steps) steps.push_back(step.seconds);
  Json out = {{"device", report.loaded.device()},
              {"prompt_ids", report.prompt_ids},
              {"ids", done.ids},
              {"text", report.tokenizer ? Json(done.text) : Json()},
              {"finish_reason", error ? "error" : engine::finish_reason_name(done.finish)},
              {"seed", report.seed},
              {"timings",
               {{"load_s", report.loaded.seconds},
                {"prefill_s", done.prefill_s},
                {"decode_s", done.decode_s},
                {"step_s", std::move(steps)}}},
              {"memory",
               {{"weights", report.loaded.memory.weights},
                {"kv", report.loaded.memory.kv},
                {"workspace", report.loaded.memory.workspace},
                {"context", report.loaded.context}}},
              {"fallbacks", fallbacks(report.loaded)}};
  if (report.steps) out["steps"] = step_list(report);
  if (error) out["error"] = json_error(error_code_name(error->code()), error->what())["error"];
  return out;
}

void print_summary(const RunReport& report) {
  const engine::Generation& done = report.generation;
  std::uint64_t cached = done.steps.empty() ? 0 : done.steps.front().cached;
  const std::uint64_t prompt = report.prompt_ids.size() - std::min<std::uint64_t>(cached, report.prompt_ids.size());
  const std::uint64_t decoded = done.ids.empty() ? 0 : done.ids.size() - 1;  // the first one came with the prompt
  const std::string text =
      fmt::format("backplane: load {:.3f} s; prompt {} tokens{} in {:.3f} s ({}); {} more in {:.3f} s ({}); {}",
                  report.loaded.seconds, prompt, cached != 0 ? fmt::format(" ({} more kept)", cached) : "",
                  done.prefill_s, rate(prompt, done.prefill_s), decoded, done.decode_s, rate(decoded, done.decode_s),
                  engine::finish_reason_name(done.finish));
  std::fprintf(stderr, "%s; seed %llu\n", text.c_str(), static_cast<unsigned long long>(report.seed));
  print_ledger(*report.loaded.model);
}

}  // namespace backplane::tools
