// What is asked of a model while its device fails: two requests whose steps are of all kinds.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/engine/engine.h"
#include "tests/unit/faults/fault_models.h"

namespace backplane::test {

// The events of one answer to a request. The margin of a token: how much likelier than the next best it was, as a
// logarithm.
struct Answer {
  std::vector<TokenId> tokens;
  std::vector<double> logprobs, margins;
  std::optional<Error> error;
};

// The first prompt comes in three chunks; then the second request joins, so that steps are mixed, and wants two
// answers, which share pages until they are written to; after all have decoded together the first goes on alone.
// `done(phase)` is called at the end of "prefill" and of "decode", `before_step` before each step but the prompt's,
// from 0.
std::vector<Answer> talk(engine::Engine& engine, const std::function<void(const char* phase)>& done = {},
                         const std::function<void(int step)>& before_step = {});
std::vector<Answer> talk(engine::Model& model);

// One request: the first one's prompt again, of which the engine may still have a page, and two tokens.
std::vector<Answer> ask(engine::Engine& engine);
std::vector<Answer> ask(engine::Model& model);

enum class Equal {
  kBits,      // tokens and log-probabilities
  kTokens,    // log-probabilities within `rounding`: some op ran on another kind of device
  kToNearTie  // as kTokens, up to the first token whose margin is below 1e-3
};

// An answer that ended with an error must have said so, and what came before is right.
// Returns kTold if there is one, else kGoneOn.
Fate expect_right(const Trial& trial, const std::vector<Answer>& got, const std::vector<Answer>& want, Equal equal,
                  double rounding = 1e-4);

void expect_no_page_held(const engine::Engine& engine);

// A step as an engine has made it, and what came out.
struct RecordedStep {
  sched::Step step;
  engine::Logits logits;
};

std::vector<RecordedStep> record_talk(engine::Model& model);
std::vector<RecordedStep> record_ask(engine::Model& model);  // a prompt, then one more token

// Runs each step again and again on the trial's device: its first call fails, then its second, until the step comes
// through without. What fails is told, and in the end each step's logits are those recorded, bit for bit.
void sweep_steps(engine::Model& model, const std::vector<RecordedStep>& steps, Trial& trial, const std::string& what);

// Another model on another device of the same plugin, which a fault must not harm.
class Neighbor {
 public:
  Neighbor();
  void expect_unharmed();

 private:
  std::unique_ptr<models::LoadedModel> model_;
  std::vector<Answer> want_;
};

}  // namespace backplane::test
