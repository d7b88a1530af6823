// A device dies at any of its calls while a model runs with another in reserve: the same tokens come, bit for bit where
// the other is of the same kind. tests/unit/models has the sweep over every call of a one-layer model with a window;
// here are the other architectures, recorded steps, and models on two devices, sampled.
#include "models/failover_model.h"

#include "models/phase_model.h"
#include "tests/unit/faults/talk.h"

namespace backplane {
namespace {

using test::Answer;
using test::Equal;
using test::Fate;
using test::FaultKind;
using test::FaultModel;
using test::Phase;
using test::Trial;

constexpr std::uint64_t kStride = 7;  // of the sampled calls

// Which device dies.
enum class Part : std::uint8_t { kOnly, kPrefill, kDecode };
constexpr const char* kPartNames[] = {"only", "prefill", "decode"};

struct Case {
  FaultModel model;
  Part part;
  bool same_kind;  // as the device in reserve
};
void PrintTo(const Case& each, std::ostream* out) { *out << each.model.name; }

class FailoverFaults : public testing::TestWithParam<std::tuple<Case, FaultKind>> {
 protected:
  FailoverFaults() : file_(each().model) {}

  const Case& each() const { return std::get<0>(GetParam()); }
  const FaultKind& kind() const { return std::get<1>(GetParam()); }

  // The trial's device as the only one, or as one of two.
  std::unique_ptr<models::LoadedModel> load(Trial& trial) const {
    auto mortal = file_.load(trial);
    if (each().part == Part::kOnly) return mortal;
    auto sound = file_.load(file_.open());
    const bool prefill = each().part == Part::kPrefill;
    return std::make_unique<models::PhaseModel>(std::move(prefill ? mortal : sound),
                                                std::move(prefill ? sound : mortal));
  }
  models::Backup backup() const {
    if (!each().same_kind) return {"cpu:f32", [this] { return file_.load(test::open_device("cpu:f32")); }};
    return {"opaque:f32", [this] { return file_.load(file_.open()); }};
  }

  Fate run(Trial& trial, const std::vector<Answer>& want) const {
    models::FailoverModel model(load(trial), backup());
    const std::vector<Answer> got = test::talk(model);
    if (trial.happened()) {
      EXPECT_TRUE(model.failed_over());
    }
    expect_right(trial, got, want, each().same_kind ? Equal::kBits : Equal::kToNearTie, each().model.rounding);
    for (const Answer& answer : got) EXPECT_FALSE(answer.error);
    return model.failed_over() ? Fate::kFailover : Fate::kGoneOn;
  }

  test::Quiet quiet_;
  test::FaultFile file_;
};

TEST_P(FailoverFaults, NoTokenChanges) {
  std::vector<Answer> want;
  std::vector<Phase> phases;
  {
    Trial trial(kind(), 0);
    const auto model = load(trial);
    phases.push_back({"load", trial.calls()});
    engine::Engine engine(*model, {.max_sequences = 4, .token_budget = 5});
    want = test::talk(engine, [&](const char* phase) { phases.push_back({phase, trial.calls()}); });
  }
  const std::string what =
      std::string("failover ") + each().model.name + " " + kPartNames[static_cast<std::size_t>(each().part)];
  // Another first call for each case and kind.
  const std::uint64_t offset =
      (static_cast<std::uint64_t>(each().part) + (each().same_kind ? 3u : 0u) + number_of(kind())) % kStride;
  test::sweep(
      kind(), what, phases, [&](Trial& trial) { return run(trial, want); }, phases[0].end + 1 + offset, kStride);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const FaultModel& model : test::fault_models()) {
    const std::string name = model.name;
    if (name == "gpt2" || name == "qwen2" || name == "casts") {
      for (const bool same_kind : {true, false}) all.push_back({model, Part::kOnly, same_kind});
    }
    if (name != "llama" && name != "qwen2") continue;
    for (const Part part : {Part::kPrefill, Part::kDecode}) all.push_back({model, part, true});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sweep, FailoverFaults,
                         testing::Combine(testing::ValuesIn(cases()),
                                          testing::Values(test::kFaultKinds[1], test::kFaultKinds[6])),
                         [](const auto& each) {
                           const Case& c = std::get<0>(each.param);
                           return std::string(c.model.name) + "_" + kPartNames[static_cast<std::size_t>(c.part)] +
                                  (c.same_kind ? "_to_the_same_kind_" : "_to_cpu_") + std::get<1>(each.param).name;
                         });

}  // namespace
}  // namespace backplane
