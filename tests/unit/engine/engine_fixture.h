// What the engine's tests share.
#pragma once

#include <map>
#include <random>
#include <vector>

#include "core/engine/engine.h"
#include "tests/unit/engine/fake_model.h"

namespace backplane::engine {

inline std::vector<TokenId> some_tokens(std::size_t n, std::uint32_t seed, std::uint32_t vocab_size = 23) {
  std::mt19937 random(seed);
  std::vector<TokenId> out(n);
  for (TokenId& id : out) id = static_cast<TokenId>(random() % vocab_size);
  return out;
}

// What came of each request.
struct Outcome {
  std::vector<TokenId> ids;
  std::string text = {};
  FinishReason finish = FinishReason::kNone;
  std::optional<Error> error = {};
  std::vector<double> logprobs = {};
};
using Outcomes = std::map<RequestId, Outcome>;

inline void collect(Outcomes& out, const std::vector<Event>& events) {
  for (const Event& event : events) {
    Outcome& outcome = out[event.request];
    if (event.token >= 0) outcome.ids.push_back(event.token);
    if (event.logprob) outcome.logprobs.push_back(*event.logprob);
    outcome.text += event.text;
    outcome.finish = event.finish;
    outcome.error = event.error;
  }
}

inline Outcomes run_to_end(Engine& engine) {
  Outcomes out;
  for (int i = 0; i < 10000 && !engine.idle(); ++i) collect(out, engine.step());
  return out;
}

// Or cached, which is as good: none is held.
inline bool all_pages_free(const Engine& engine, std::uint32_t groups = 1) {
  for (std::uint32_t g = 0; g < groups; ++g) {
    if (engine.pages(g).available() != engine.pages(g).total) return false;
  }
  return engine.fault().empty();
}

}  // namespace backplane::engine
