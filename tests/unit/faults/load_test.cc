// Each call of opening a device and loading a model fails once, in each way. The error is told and nothing is left;
// only a question may be answered "not supported", and then the model runs in another way.
#include "tests/unit/faults/talk.h"

namespace backplane {
namespace {

using test::Answer;
using test::Equal;
using test::Fate;
using test::FaultKind;
using test::FaultModel;
using test::Trial;

class LoadFaults : public testing::TestWithParam<std::tuple<FaultModel, FaultKind>> {
 protected:
  LoadFaults() : file_(model()) {
    Trial trial(kind(), 0);
    const auto loaded = file_.load(trial);
    calls_ = trial.calls();
    want_ = test::ask(*loaded);
  }

  const FaultModel& model() const { return std::get<0>(GetParam()); }
  const FaultKind& kind() const { return std::get<1>(GetParam()); }

  Fate run(Trial& trial) {
    try {
      const auto loaded = file_.load(trial);
      if (!trial.happened()) return Fate::kGoneOn;
      EXPECT_EQ(kind().status, bp_status{BP_UNSUPPORTED}) << "only that is an answer";
      EXPECT_EQ(expect_right(trial, test::ask(*loaded), want_, Equal::kTokens, model().rounding), Fate::kGoneOn);
      return Fate::kGoneOn;
    } catch (const Error& error) {
      trial.expect_told(error);
    }
    if (trial.loses()) neighbor_.expect_unharmed();
    return Fate::kTold;
  }

  test::FaultFile file_;
  test::Neighbor neighbor_;
  std::uint64_t calls_ = 0;
  std::vector<Answer> want_;
};

// All calls for the first model, and where the device is lost or a question answered with no. Else every third one,
// another for each kind: what goes wrong in other ways is told alike, and most calls of loading don't go by the stream,
// so that they fail at once also where late failures are wanted.
TEST_P(LoadFaults, EveryCallFailsOnce) {
  ASSERT_GT(calls_, 20u);
  const bool apart = !kind().late && (kind().status == BP_DEVICE_LOST || kind().status == BP_UNSUPPORTED);
  const bool sampled = !apart && model().name != std::string(test::fault_models()[0].name);
  const std::uint64_t first = sampled ? 1 + number_of(kind()) % 3 : 1;
  test::sweep(
      kind(), model().name, {{"load", calls_}}, [this](Trial& trial) { return run(trial); }, first, sampled ? 3 : 1);
}

INSTANTIATE_TEST_SUITE_P(Sweep, LoadFaults,
                         testing::Combine(testing::ValuesIn(test::fault_models().begin(), test::fault_models().end()),
                                          testing::ValuesIn(test::kFaultKinds)),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param).name) + "_" + std::get<1>(each.param).name;
                         });

}  // namespace
}  // namespace backplane
