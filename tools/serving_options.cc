#include "tools/serving_options.h"

#include "core/base/error.h"
#include "plugins/host/host_table.h"

namespace backplane::tools {
namespace {

constexpr std::uint32_t kMostRunning = 4096;

void check(const ServingOptions& options) {
  const auto refuse = [](std::string_view what, std::string_view where, std::string_view todo) {
    throw Error(ErrorCode::kUsage, what, where, todo);
  };
  if (options.max_running == 0 || options.max_running > kMostRunning) {
    refuse("the number of requests running at once must be 1 to " + std::to_string(kMostRunning), "--max-running", "");
  }
  if (options.step_tokens < options.max_running) {
    refuse("a step has a token of every running request", "--step-tokens",
           "give at least --max-running, " + std::to_string(options.max_running));
  }
  if (options.kv_tokens == 0u) refuse("the KV cache needs room for at least one token", "--kv-tokens", "");
}

}  // namespace

models::LoadOptions ServingOptions::load() const {
  check(*this);
  models::LoadOptions load;
  load.max_sequences = max_running;
  load.max_step_tokens = step_tokens;
  load.kv_tokens = kv_tokens.value_or(0);
  return load;
}

engine::ServiceOptions ServingOptions::service(const OpenedModel& opened, std::size_t max_requests) const {
  check(*this);
  engine::ServiceOptions service;
  service.engine.max_sequences = max_running;
  service.engine.token_budget = step_tokens;
  service.engine.tokenizer = opened.tokenizer_or_null();
  service.engine.step_records = 1;
  service.engine.pool = &plugins::host_pool();
  service.max_requests = max_requests;
  return service;
}

void add_options(Command& command, ServingOptions& options) {
  command.option("--max-running", options.max_running, "N", "Requests computed together in a step; default 32")
      .option("--step-tokens", options.step_tokens, "N",
              "Tokens computed in a step at most, prompts and replies together; default 512")
      .option("--kv-tokens", options.kv_tokens, "N",
              "Tokens that all running requests together may have in the KV cache (default: a whole context each, as "
              "far as that takes no more than half of the host's free memory, or nine tenths of a device's)");
}

}  // namespace backplane::tools
