// Each call of a decode step that is run, recorded or launched fails once, in each way. A recording that fails costs
// only itself: the step is run op by op, and so are all later ones.
#include "tests/unit/faults/talk.h"

namespace backplane {
namespace {

using test::Fate;
using test::FaultKind;
using test::FaultModel;
using test::Trial;

constexpr const char* kPhases[] = {"run", "record", "launch"};

class CaptureFaults : public testing::TestWithParam<std::tuple<FaultModel, FaultKind>> {
 protected:
  CaptureFaults() : file_(model()) {
    Trial trial(kind(), 0);
    const auto loaded = file_.load(trial);
    const auto steps = test::record_ask(*loaded);
    prompt_ = steps.at(0).step;
    decode_ = steps.at(1).step;
  }

  const FaultModel& model() const { return std::get<0>(GetParam()); }
  const FaultKind& kind() const { return std::get<1>(GetParam()); }

  // The same step three times over, which must give the same each time.
  Fate run(std::uint64_t n, Trial& trial, std::string& phase) {
    const auto loaded = file_.load(trial);
    loaded->forward(prompt_);
    trial.arm(n);
    Fate fate = Fate::kGoneOn;
    for (const char* each : kPhases) {
      phase = each;
      try {
        expect_same(loaded->forward(decode_));
      } catch (const Error& error) {
        trial.expect_told(error);
        fate = Fate::kTold;
      }
      if (trial.happened()) break;
    }
    if (!trial.happened()) {
      phase = "unload";
      EXPECT_EQ(loaded->executor().captures().recorded, 1u);
      EXPECT_EQ(loaded->executor().captures().launched, 2u);
      return fate;
    }
    EXPECT_TRUE(fate == Fate::kTold || !trial.loses());
    if (fate == Fate::kGoneOn) {
      EXPECT_EQ(phase, "record") << "in place of an op that has run, nothing can go on";
    }
    for (int again = 0; again < 3; ++again) {
      if (trial.loses()) {
        EXPECT_THROW(loaded->forward(decode_), DeviceLost);
      } else {
        expect_same(loaded->forward(decode_));
      }
    }
    return fate;
  }

  void expect_same(const engine::Logits& logits) {
    if (want_.empty()) want_ = logits.values;
    EXPECT_EQ(logits.values, want_);
  }

  test::Quiet quiet_;
  test::FaultFile file_;
  sched::Step prompt_, decode_;
  std::vector<double> want_;
};

TEST_P(CaptureFaults, EveryCallFailsOnce) {
  std::set<std::string> seen;
  Trial sound(kind(), 0);
  std::string phase;
  run(0, sound, phase);  // learns what comes out
  for (std::uint64_t n = 1; !HasFailure(); ++n) {
    SCOPED_TRACE(n);
    Trial trial(kind(), 0);
    const Fate fate = run(n, trial, phase);
    trial.expect_clean();
    if (!trial.happened()) break;
    seen.insert(phase);
    test::note_fault(phase + " " + model().name, kind(), fate);
  }
  for (const char* each : kPhases) EXPECT_TRUE(seen.contains(each)) << each;
}

INSTANTIATE_TEST_SUITE_P(Sweep, CaptureFaults,
                         testing::Combine(testing::ValuesIn(test::fault_models({"qwen3", "casts"})),
                                          testing::ValuesIn(test::kFaultKinds)),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param).name) + "_" + std::get<1>(each.param).name;
                         });

}  // namespace
}  // namespace backplane
