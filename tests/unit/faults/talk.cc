#include "tests/unit/faults/talk.h"

#include <cmath>
#include <map>

#include "tests/support/wrapped_model.h"
#include "tests/unit/device/runs.h"

namespace backplane::test {
namespace {

engine::Request request(std::size_t n, std::uint64_t seed, std::uint32_t max_tokens) {
  engine::Request made;
  made.prompt = tokens_of(n, seed);
  made.sampling.temperature = 0;
  made.max_tokens = max_tokens;
  made.ignore_eos = true;
  made.top_logprobs = 2;
  return made;
}

void note(Answer& answer, const engine::Event& event) {
  if (event.error) answer.error = event.error;
  if (event.token < 0) return;
  answer.tokens.push_back(event.token);
  answer.logprobs.push_back(event.logprob.value());
  answer.margins.push_back(event.top.at(0).logprob - event.top.at(1).logprob);
}

}  // namespace

std::vector<Answer> talk(engine::Engine& engine, const std::function<void(const char* phase)>& done,
                         const std::function<void(int step)>& before_step) {
  std::map<std::pair<engine::RequestId, std::uint32_t>, Answer> answers;
  const auto step = [&] {
    for (const engine::Event& event : engine.step()) note(answers[{event.request, event.answer}], event);
  };
  answers[{engine.submit(request(14, 5, 7)), 0}];
  while (!engine.idle() && answers.begin()->second.tokens.empty()) step();
  if (done) done("prefill");
  engine::Request two = request(7, 6, 3);
  two.n = 2;
  const engine::RequestId id = engine.submit(std::move(two));
  for (const std::uint32_t answer : {0u, 1u}) answers[{id, answer}];
  for (int i = 0; !engine.idle(); ++i) {
    if (before_step) before_step(i);
    step();
  }
  if (done) done("decode");
  std::vector<Answer> out;
  for (auto& [key, answer] : answers) out.push_back(std::move(answer));
  return out;
}

std::vector<Answer> talk(engine::Model& model) {
  engine::Engine engine(model, {.max_sequences = 4, .token_budget = 5});
  return talk(engine);
}

std::vector<Answer> ask(engine::Engine& engine) {
  std::vector<Answer> out(1);
  engine.submit(request(14, 5, 2));
  while (!engine.idle()) {
    for (const engine::Event& event : engine.step()) note(out[0], event);
  }
  return out;
}

std::vector<Answer> ask(engine::Model& model) {
  engine::Engine engine(model, {.max_sequences = 4, .token_budget = 20});
  return ask(engine);
}

Fate expect_right(const Trial& trial, const std::vector<Answer>& got, const std::vector<Answer>& want, Equal equal,
                  double rounding) {
  Fate fate = Fate::kGoneOn;
  EXPECT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size() && i < want.size(); ++i) {
    if (got[i].error) {
      fate = Fate::kTold;
      trial.expect_told(*got[i].error);
      EXPECT_LT(got[i].tokens.size(), want[i].tokens.size());
    } else {
      EXPECT_EQ(got[i].tokens.size(), want[i].tokens.size()) << "an answer that just stops";
    }
    for (std::size_t t = 0; t < got[i].tokens.size() && t < want[i].tokens.size(); ++t) {
      if (equal == Equal::kToNearTie && want[i].margins[t] < 1e-3) break;
      EXPECT_EQ(got[i].tokens[t], want[i].tokens[t]) << "request " << i << " token " << t;
      if (equal == Equal::kBits) {
        EXPECT_EQ(got[i].logprobs[t], want[i].logprobs[t]) << "request " << i << " token " << t;
      } else {
        EXPECT_NEAR(got[i].logprobs[t], want[i].logprobs[t], rounding) << "request " << i << " token " << t;
      }
    }
  }
  return fate;
}

void expect_no_page_held(const engine::Engine& engine) {
  for (std::uint32_t g = 0; g < engine.groups(); ++g) {
    const kv::PoolCounts counts = engine.pages(g);
    EXPECT_EQ(counts.held, 0u) << "group " << g;
    EXPECT_EQ(counts.free + counts.cached, counts.total) << "group " << g;
  }
}

namespace {

// Remembers what passes through.
class Recorder final : public test::WrappedModel {
 public:
  using WrappedModel::WrappedModel;

  engine::Logits forward(const sched::Step& step) override {
    steps.push_back({step, WrappedModel::forward(step)});
    return steps.back().logits;
  }

  std::vector<RecordedStep> steps;
};

std::string kind_of(const sched::Step& step) {
  return step.n_decode == step.sequences() ? "decode" : step.n_decode == 0 ? "prefill" : "mixed";
}

}  // namespace

std::vector<RecordedStep> record_talk(engine::Model& model) {
  Recorder recorder(model);
  talk(recorder);
  return recorder.steps;
}

std::vector<RecordedStep> record_ask(engine::Model& model) {
  Recorder recorder(model);
  ask(recorder);
  return recorder.steps;
}

void sweep_steps(engine::Model& model, const std::vector<RecordedStep>& steps, Trial& trial, const std::string& what) {
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const std::string phase = kind_of(steps[s].step);
    for (std::uint64_t call = 1; !testing::Test::HasFailure(); ++call) {
      SCOPED_TRACE(what + ", step " + std::to_string(s) + ", " + phase + ", call " + std::to_string(call));
      trial.arm(call);
      Fate fate = Fate::kGoneOn;
      try {
        const engine::Logits logits = model.forward(steps[s].step);
        EXPECT_EQ(logits.values, steps[s].logits.values);
      } catch (const Error& error) {
        trial.expect_told(error);
        fate = Fate::kTold;
      }
      if (!trial.happened()) {
        EXPECT_EQ(fate, Fate::kGoneOn);
        break;
      }
      note_fault(phase + " " + what, trial.kind(), fate);
    }
  }
  trial.arm(0);
}

Neighbor::Neighbor() {
  const FaultFile file(fault_models()[0]);
  model_ = file.load(file.open());
  want_ = ask(*model_);
}

void Neighbor::expect_unharmed() {
  const std::vector<Answer> got = ask(*model_);
  for (std::size_t i = 0; i < want_.size(); ++i) {
    EXPECT_FALSE(got[i].error);
    EXPECT_EQ(got[i].tokens, want_[i].tokens);
    EXPECT_EQ(got[i].logprobs, want_[i].logprobs);
  }
}

}  // namespace backplane::test
