#include "tools/run_options.h"

#include <algorithm>
#include <random>

#include "core/base/error.h"

namespace backplane::tools {
namespace {

std::uint64_t random_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 21) ^ device();  // at most 53 bits: any JSON reader keeps them
}

}  // namespace

engine::Request make_request(const RunOptions& options, const OpenedModel& opened, bool chat) {
  engine::Request request;
  request.sampling = {.temperature = options.temperature,
                      .top_k = static_cast<std::int32_t>(std::min<std::uint32_t>(options.top_k, INT32_MAX)),
                      .top_p = options.top_p,
                      .min_p = options.min_p,
                      .seed = options.seed ? *options.seed : random_seed()};
  sample::validate(request.sampling);
  request.max_tokens = options.max_tokens.value_or(chat ? kReplyTokens : kCompletionTokens);
  if (*request.max_tokens == 0) {
    throw Error(ErrorCode::kUsage, "at least one token must be asked for", "-n 0", "give a larger number");
  }
  request.eos_ids = opened.end_ids();
  request.ignore_eos = options.ignore_eos;
  request.stop = options.stop;
  if (!request.stop.empty()) opened.need_tokenizer();
  request.top_logprobs = options.top_logprobs;
  return request;
}

}  // namespace backplane::tools
