// What requests gave, to be compared in every bit.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <ostream>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "tests/unit/device/runs.h"

namespace backplane {

using Ids = std::vector<TokenId>;

// Of one answer: tokens, their log-probabilities and those of the best three. Equal means equal bits.
struct Answer {
  Ids ids;
  std::vector<double> logprobs;
  bool operator==(const Answer&) const = default;
};
inline void PrintTo(const Answer& answer, std::ostream* out) { *out << testing::PrintToString(answer.ids); }

using Key = std::pair<engine::RequestId, std::uint32_t>;
using Answers = std::map<Key, Answer>;

inline void collect(Answers& out, const std::vector<engine::Event>& events) {
  for (const engine::Event& event : events) {
    if (event.error) throw *event.error;
    if (event.token < 0) continue;
    Answer& answer = out[{event.request, event.answer}];
    answer.ids.push_back(event.token);
    answer.logprobs.push_back(event.logprob.value());
    for (const auto& top : event.top) answer.logprobs.push_back(top.logprob);
  }
}

// Tokens, by the executed steps' own records.
inline std::uint64_t computed(const engine::Engine& engine) {
  std::uint64_t sum = 0;
  for (const engine::StepRecord& record : engine.steps().records()) sum += record.tokens;
  return sum;
}

inline Answers run_to_end(engine::Engine& engine) {
  Answers out;
  while (!engine.idle()) collect(out, engine.step());
  return out;
}

inline engine::Request request(Ids prompt, std::uint32_t tokens = 8, std::uint64_t seed = 3) {
  return {.prompt = std::move(prompt),
          .sampling = {.temperature = 1.2, .seed = seed},
          .max_tokens = tokens,
          .ignore_eos = true,
          .top_logprobs = 3};
}

}  // namespace backplane
