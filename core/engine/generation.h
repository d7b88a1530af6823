// One request from start to end, for programs that serve one at a time.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/request.h"
#include "core/engine/step_runner.h"

namespace backplane::engine {

struct Generation {
  std::vector<TokenId> ids;  // generated, with the token that ended the text
  std::string text;
  std::vector<double> logprobs;                        // one a token, when the request asks for them
  std::vector<std::vector<sample::TokenLogprob>> top;  // likewise
  std::vector<sample::TokenReport> prompt;             // of the prompt's tokens from the second one on, likewise
  FinishReason finish = FinishReason::kNone;
  std::optional<Error> error;     // when finish is kError
  std::vector<StepRecord> steps;  // that the model executed for it
  double prefill_s = 0;           // to the first token
  double decode_s = 0;            // from there to the end
};

using TokenCallback = std::function<void(const Event&)>;

// Submits the request, runs it to its end and calls on_event (may be empty) for each of its events. Once *interrupt is
// true (set from anywhere, a signal handler too) the request is canceled before the next step. Throws what submit
// throws, kUsage when the engine has other requests or the request wants several answers, and what on_event throws,
// after canceling the request.
Generation generate(Engine& engine, Request request, const TokenCallback& on_event = {},
                    const std::atomic<bool>* interrupt = nullptr);

// The same for a request with any number of answers, in their order. `prompt` is with the first alone; all have the
// steps of the whole request, and the time to their own end.
std::vector<Generation> generate_all(Engine& engine, Request request, const TokenCallback& on_event = {},
                                     const std::atomic<bool>* interrupt = nullptr);

// The same for a request with n answers that has been submitted and is the only one.
std::vector<Generation> follow(Engine& engine, RequestId id, std::uint32_t n, const TokenCallback& on_event,
                               const std::atomic<bool>* interrupt);
void require_idle(const Engine& engine);
void require_one_answer(const Request& request);

}  // namespace backplane::engine
