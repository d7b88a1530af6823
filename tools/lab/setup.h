// What the experiments share: the model, texts for it, how fast it is.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/generation.h"
#include "core/engine/model.h"
#include "core/engine/scorer.h"
#include "core/text/tokenizer.h"
#include "tools/lab/sizes.h"
#include "tools/lab/trace.h"
#include "tools/lab/work.h"

namespace backplane::lab {

// Prompts of any length: pieces of one English text, over and over; of a model without tokenizer, ids drawn at random.
class Prompts {
 public:
  // tokenizer: may be null.
  Prompts(std::shared_ptr<const text::Tokenizer> tokenizer, std::uint32_t vocab_size, std::uint64_t seed);

  // `number`: prompts of different numbers begin at different places of the text. Those of one number are prefixes of
  // each other.
  std::vector<TokenId> ids(std::uint32_t tokens, std::uint32_t number = 0) const;
  // Empty without a tokenizer.
  std::string text(const std::vector<TokenId>& ids) const;

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<TokenId> first_, source_;  // what every prompt begins with (BOS), the text
};

// Throws what interrupts the work; otherwise it shows how far the experiment is.
using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

struct Setup {
  engine::Model& model;  // no engine or scorer lives on it between experiments
  const StepWork& work;
  const Prompts& prompts;
  const Trace& trace;
  Speed speed;
  Room room;
  Progress progress;
};

Room measure_room(engine::Model& model);
// Requires: room.context >= kLeastContext.
Speed measure_speed(engine::Model& model, const Prompts& prompts, const Room& room);

// A request for so many greedy tokens, however the model would like to end.
engine::Request greedy_request(std::vector<TokenId> prompt, std::uint32_t tokens);
// Runs one on an idle engine. Throws its error when it fails.
engine::Generation generate_greedy(engine::Engine& engine, std::vector<TokenId> prompt, std::uint32_t tokens,
                                   const engine::TokenCallback& on_event = {});
// The settings of an engine for measurements: nothing is kept from one request for another, none is interrupted.
engine::EngineOptions measuring(std::uint32_t max_sequences, const Room& room);
// The token after the line, greedy, and the seconds that the model took to compute all of it.
struct Scored {
  TokenId token = -1;
  double seconds = 0;
};
Scored score_whole(engine::Scorer& scorer, const std::vector<TokenId>& ids);
double seconds_of(const std::vector<engine::StepRecord>& steps);

}  // namespace backplane::lab
