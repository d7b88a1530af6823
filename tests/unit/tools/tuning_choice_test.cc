#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "core/base/error.h"
#include "tests/support/expect_error.h"
#include "tools/tuning/choice.h"
#include "tools/tuning/trial.h"

namespace backplane::tuning {
namespace {

// A machine on which setting i takes these seconds, times what `noise` says for a run of it.
struct Machine {
  std::vector<Sample> settings;
  std::function<double(std::size_t setting, std::size_t run)> noise = [](std::size_t, std::size_t) { return 1.0; };
  double now = 100;
  std::vector<std::size_t> order = {};

  Choice choose(const Limits& limits = {}) {
    std::vector<std::size_t> runs(settings.size());
    return tuning::choose(
        settings.size(),
        [&](std::size_t i) {
          order.push_back(i);
          const double factor = noise(i, runs[i]++);
          now += (settings[i].prefill + settings[i].decode) * factor;
          return Sample{settings[i].prefill * factor, settings[i].decode * factor};
        },
        [&] { return now; }, limits);
  }
};

TEST(TuningChoice, TakesWhatWinsClearly) {
  Machine machine{.settings = {{0.010, 0.010}, {0.010, 0.012}, {0.0101, 0.008}}};
  const Choice choice = machine.choose();
  EXPECT_EQ(choice.setting, 2u);
  EXPECT_NE(choice.why.find("replies +25%"), std::string::npos) << choice.why;
}

TEST(TuningChoice, KeepsTheDefaultWhereOthersAreHardlyBetter) {
  EXPECT_EQ((Machine{.settings = {{0.010, 0.010}, {0.0095, 0.0095}}}).choose().setting, 0u);
  EXPECT_EQ((Machine{.settings = {{0.010, 0.010}, {0.010, 0.010}}}).choose().setting, 0u);
  EXPECT_EQ((Machine{.settings = {{0.010, 0.010}}}).choose().setting, 0u);
}

TEST(TuningChoice, WinsNothingByLosingElsewhere) {
  EXPECT_EQ((Machine{.settings = {{0.010, 0.010}, {0.011, 0.005}}}).choose().setting, 0u);
  EXPECT_EQ((Machine{.settings = {{0.010, 0.010}, {0.005, 0.011}}}).choose().setting, 0u);
  EXPECT_EQ((Machine{.settings = {{0.010, 0.010}, {0.008, 0.010}}}).choose().setting, 1u);
}

TEST(TuningChoice, TakesTheBestOfSeveral) {
  EXPECT_EQ((Machine{.settings = {{0.010, 0.010}, {0.008, 0.009}, {0.006, 0.009}, {0.007, 0.009}}}).choose().setting,
            2u);
}

// One slow round of the default isn't a setting's merit, and one fast round of it isn't forgotten.
TEST(TuningChoice, IsNotMisledByNoise) {
  Machine once{.settings = {{0.010, 0.010}, {0.010, 0.010}}};
  once.noise = [](std::size_t setting, std::size_t run) { return setting == 0 && run < 3 ? 3.0 : 1.0; };
  EXPECT_EQ(once.choose().setting, 0u);
  Machine single{.settings = {{0.010, 0.010}, {0.008, 0.008}}};
  single.noise = [](std::size_t setting, std::size_t run) { return setting == 0 && run == 2 ? 0.5 : 1.0; };
  EXPECT_EQ(single.choose().setting, 0u);
}

TEST(TuningChoice, DoesNotCountTheFirstRuns) {
  Machine machine{.settings = {{0.010, 0.010}, {0.008, 0.008}}};
  machine.noise = [](std::size_t setting, std::size_t run) { return setting == 1 && run == 0 ? 4.0 : 1.0; };
  EXPECT_EQ(machine.choose().setting, 1u);
}

TEST(TuningChoice, ChangesTheOrderAndKeepsToTheTime) {
  Machine machine{.settings = {{0.010, 0.010}, {0.010, 0.010}}};
  machine.choose({.seconds = 0.3, .rounds = 7, .least = 3});
  ASSERT_GE(machine.order.size(), 8u);
  EXPECT_EQ(std::vector<std::size_t>(machine.order.begin(), machine.order.begin() + 8),
            (std::vector<std::size_t>{0, 1, 0, 1, 1, 0, 0, 1}));
  EXPECT_LE(machine.now - 100, 0.3 + 0.04 + 1e-9);  // the round that had begun
  Machine quick{.settings = {{1e-6, 1e-6}, {1e-6, 1e-6}}};
  quick.choose();
  EXPECT_EQ(quick.order.size(), 2 * (7u + 1));
}

TEST(TuningChoice, GivesUpOnSlowModels) {
  Machine machine{.settings = {{1, 1}, {0.1, 0.1}}};
  const Choice choice = machine.choose();
  EXPECT_EQ(choice.setting, 0u);
  EXPECT_NE(choice.why.find("too long"), std::string::npos);
  EXPECT_EQ(machine.order.size(), 2u);
}

TEST(TuningChoice, BelievesNoClockThatStandsStill) {
  EXPECT_EQ((Machine{.settings = {{0, 0}, {0, 0}}}).choose().setting, 0u);
  EXPECT_EQ((Machine{.settings = {{0.01, 0.01}, {0, 0}}}).choose().setting, 0u);
}

TEST(TuningChoice, PassesOnWhatAMeasurementThrows) {
  const auto fail = [](std::size_t) -> Sample { throw Error(ErrorCode::kInterrupted, "stopped"); };
  EXPECT_ERROR(choose(2, fail, [] { return 0.0; }), ErrorCode::kInterrupted, "stopped");
}

TEST(FewerThreads, AreThoseOfTheCoresAndHalfOfThem) {
  using Numbers = std::vector<unsigned>;
  EXPECT_EQ(fewer_threads(1, 1), Numbers());
  EXPECT_EQ(fewer_threads(2, 2), Numbers{1});
  EXPECT_EQ(fewer_threads(2, 1), Numbers{1});
  EXPECT_EQ(fewer_threads(16, 8), (Numbers{8, 4}));
  EXPECT_EQ(fewer_threads(16, 16), Numbers{8});
  EXPECT_EQ(fewer_threads(16, 0), Numbers{8});
  EXPECT_EQ(fewer_threads(3, 8), Numbers{1});  // of many cores, a quota lets it use a few
}

}  // namespace
}  // namespace backplane::tuning
