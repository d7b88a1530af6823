// Each call of each step fails once, in each way that leaves the device alive. The step is told to have failed, and run
// again gives the same bits: nothing that was computed before is harmed.
#include "tests/unit/faults/talk.h"

namespace backplane {
namespace {

using test::FaultKind;
using test::FaultModel;
using test::Trial;

class StepFaults : public testing::TestWithParam<std::tuple<FaultModel, FaultKind>> {};

TEST_P(StepFaults, EveryCallFailsOnce) {
  const auto& [model, kind] = GetParam();
  const test::FaultFile file(model);
  Trial trial(kind, 0);
  {
    const auto loaded = file.load(trial);
    const auto steps = test::record_talk(*loaded);
    ASSERT_GE(steps.size(), 8u);
    test::sweep_steps(*loaded, steps, trial, model.name);
  }
  trial.expect_clean();
}

// All kinds for the first model, half of them for the others.
std::vector<std::tuple<FaultModel, FaultKind>> cases() {
  std::vector<std::tuple<FaultModel, FaultKind>> all;
  for (const FaultModel& model : test::fault_models()) {
    for (const FaultKind& kind : test::lasting_kinds()) {
      const bool memory_or_no = kind.status == BP_OUT_OF_MEMORY || kind.status == BP_UNSUPPORTED;
      const bool first = model.name == std::string(test::fault_models()[0].name);
      if (first || memory_or_no != kind.late) all.emplace_back(model, kind);
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sweep, StepFaults, testing::ValuesIn(cases()), [](const auto& each) {
  return std::string(std::get<0>(each.param).name) + "_" + std::get<1>(each.param).name;
});

}  // namespace
}  // namespace backplane
