#include "tools/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "core/text/utf8.h"
#include "tools/json_lines.h"
#include "tools/shadow_report.h"

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

Json kernels(LoadedModel& loaded) {
  Json list = Json::array();
  for (const device::KernelUse& use : loaded.model->kernels()) {
    list.push_back({{"op", use.op},
                    {"device", use.device},
                    {"shape", use.shape},
                    {"fewest_tokens", use.fewest_tokens},
                    {"most_tokens", use.most_tokens},
                    {"kernel", use.kernel},
                    {"count", use.count}});
  }
  return list;
}

Json logprob_json(double logprob) { return std::isfinite(logprob) ? logprob : -9999.0; }

Json step_json(const RunReport& report, TokenId id, double logprob, std::span<const sample::TokenLogprob> top) {
  Json list = Json::array();
  for (const sample::TokenLogprob& each : top) {
    list.push_back({{"id", each.id}, {"token", token_text(report, each.id)}, {"logprob", logprob_json(each.logprob)}});
  }
  return {{"id", id}, {"logprob", logprob_json(logprob)}, {"top", std::move(list)}};
}

Json step_list(const RunReport& report, const engine::Generation& answer) {
  Json steps = Json::array();
  for (std::size_t i = 0; i < answer.logprobs.size() && i < answer.ids.size(); ++i) {
    steps.push_back(step_json(report, answer.ids[i], answer.logprobs[i], answer.top[i]));
  }
  return steps;
}

// The first token follows nothing and has no probability.
Json prompt_list(const RunReport& report) {
  const auto& ids = report.prompt_ids;
  Json steps = Json::array();
  steps.push_back({{"id", ids.at(0)}, {"logprob", nullptr}, {"top", Json::array()}});
  const auto& tokens = report.answers.front().prompt;
  for (std::size_t i = 0; i < tokens.size() && i + 1 < ids.size(); ++i) {
    steps.push_back(step_json(report, ids[i + 1], tokens[i].logprob, tokens[i].top));
  }
  return steps;
}

void add_answer(Json& out, const RunReport& report, const engine::Generation& answer) {
  const std::optional<Error> error = error_of(answer);
  out["ids"] = answer.ids;
  out["text"] = report.tokenizer ? Json(answer.text) : Json();
  out["finish_reason"] = error ? "error" : engine::finish_reason_name(answer.finish);
  if (report.steps) out["steps"] = step_list(report, answer);
  if (error) out["error"] = json_error(error_code_name(error->code()), error->what())["error"];
}

Json choices(const RunReport& report) {
  Json list = Json::array();
  for (const engine::Generation& answer : report.answers) {
    Json choice = {{"index", list.size()}};
    add_answer(choice, report, answer);
    list.push_back(std::move(choice));
  }
  return list;
}

// Until all answers have ended.
double decode_seconds(const RunReport& report) {
  double most = 0;
  for (const engine::Generation& answer : report.answers) most = std::max(most, answer.prefill_s + answer.decode_s);
  return most - report.answers.front().prefill_s;
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

std::optional<Error> error_of(std::span<const engine::Generation> answers) {
  for (const engine::Generation& answer : answers) {
    if (auto error = error_of(answer)) return error;
  }
  return std::nullopt;
}

nlohmann::ordered_json report_json(const RunReport& report) {
  const engine::Generation& first = report.answers.front();
  Json steps = Json::array();
  for (const engine::StepRecord& step : first.steps) steps.push_back(step.seconds);
  Json out = {{"device", report.loaded.device()},
              {"device_at_end", report.loaded.device_now()},
              {"prompt_ids", report.prompt_ids}};
  if (report.answers.size() == 1) {
    add_answer(out, report, first);
  } else {
    out["choices"] = choices(report);
  }
  if (report.prompt_steps) out["prompt_logprobs"] = prompt_list(report);
  out["seed"] = report.seed;
  out["timings"] = {{"load_s", report.loaded.seconds},
                    {"prefill_s", first.prefill_s},
                    {"decode_s", decode_seconds(report)},
                    {"step_s", std::move(steps)}};
  out["memory"] = {{"weights", report.loaded.memory.weights},
                   {"kv", report.loaded.memory.kv},
                   {"workspace", report.loaded.memory.workspace},
                   {"context", report.loaded.context}};
  out["fallbacks"] = fallbacks(report.loaded);
  out["kernels"] = kernels(report.loaded);
  if (report.loaded.shadow) out["shadow"] = shadow_json(*report.loaded.shadow);
  return out;
}

void print_summary(const RunReport& report) {
  const engine::Generation& first = report.answers.front();
  std::uint64_t cached = first.steps.empty() ? 0 : first.steps.front().cached;
  const std::uint64_t prompt = report.prompt_ids.size() - std::min<std::uint64_t>(cached, report.prompt_ids.size());
  std::uint64_t decoded = 0;
  std::string ends;
  for (const engine::Generation& answer : report.answers) {
    decoded += answer.ids.empty() ? 0 : answer.ids.size() - 1;  // the first one came with the prompt
    ends += fmt::format("{}{}", ends.empty() ? "" : ", ", engine::finish_reason_name(answer.finish));
  }
  const double decode_s = decode_seconds(report);
  const std::string text =
      fmt::format("backplane: load {:.3f} s; prompt {} tokens{} in {:.3f} s ({}); {} more in {:.3f} s ({}); {}",
                  report.loaded.seconds, prompt, cached != 0 ? fmt::format(" ({} more kept)", cached) : "",
                  first.prefill_s, rate(prompt, first.prefill_s), decoded, decode_s, rate(decoded, decode_s), ends);
  std::fprintf(stderr, "%s; seed %llu\n", text.c_str(), static_cast<unsigned long long>(report.seed));
  print_ledger(report.loaded);
}

}  // namespace backplane::tools
