// Each call of an engine's steps fails once, in each way: requests end with the reason, or as if nothing had happened;
// those that come later are served, by this engine or, where the device is lost, by others in the process.
#include "tests/unit/faults/talk.h"

namespace backplane {
namespace {

using test::Answer;
using test::Equal;
using test::Fate;
using test::FaultKind;
using test::Phase;
using test::Trial;

class GenerationFaults : public testing::TestWithParam<FaultKind> {
 protected:
  GenerationFaults() : file_(test::fault_models()[0]) {
    Trial trial(GetParam(), 0);
    const auto loaded = file_.load(trial);
    phases_.push_back({"load", trial.calls()});
    engine::Engine engine(*loaded, kOptions);
    want_ = test::talk(engine, [&](const char* phase) { phases_.push_back({phase, trial.calls()}); });
    want_later_ = test::ask(engine);
  }

  Fate run(Trial& trial) {
    const auto loaded = file_.load(trial);
    engine::Engine engine(*loaded, kOptions);
    const Fate fate = expect_right(trial, test::talk(engine), want_, Equal::kBits);
    if (!trial.happened()) return fate;
    EXPECT_TRUE(fate == Fate::kTold || !trial.loses());
    const std::vector<Answer> later = test::ask(engine);
    EXPECT_EQ(expect_right(trial, later, want_later_, Equal::kBits), trial.loses() ? Fate::kTold : Fate::kGoneOn);
    test::expect_no_page_held(engine);
    if (trial.loses()) neighbor_.expect_unharmed();
    return fate;
  }

  static inline const engine::EngineOptions kOptions{.max_sequences = 4, .token_budget = 5};
  test::Quiet quiet_;
  test::FaultFile file_;
  test::Neighbor neighbor_;
  std::vector<Phase> phases_;
  std::vector<Answer> want_, want_later_;
};

// Every call where the device is lost; else every fourth one, another for each kind, since step_test.cc has them all.
TEST_P(GenerationFaults, EveryCallFailsOnce) {
  ASSERT_EQ(phases_.size(), 3u);
  ASSERT_GT(phases_[1].end, phases_[0].end + 20);
  ASSERT_GT(phases_[2].end, phases_[1].end + 20);
  for (const Answer& answer : want_) ASSERT_FALSE(answer.error);
  const bool lost = GetParam().status == BP_DEVICE_LOST;
  const std::uint64_t first = lost ? 1 : 1 + number_of(GetParam()) % 4;
  test::sweep(
      GetParam(), "engine", phases_, [this](Trial& trial) { return run(trial); }, phases_[0].end + first, lost ? 1 : 4);
}

INSTANTIATE_TEST_SUITE_P(Sweep, GenerationFaults, testing::ValuesIn(test::kFaultKinds), test::kind_name);

}  // namespace
}  // namespace backplane
