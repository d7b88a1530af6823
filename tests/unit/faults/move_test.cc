// Each call of moving a running model to another device fails once, in each way, on the device it leaves and on the one
// it goes to: it stays where it is, or goes on where it can, and no token changes.
#include "models/failover_model.h"
#include "tests/unit/faults/talk.h"

namespace backplane {
namespace {

using test::Answer;
using test::Equal;
using test::Fate;
using test::FaultKind;
using test::Trial;

class MoveFaults : public testing::TestWithParam<std::tuple<bool, FaultKind>> {
 protected:
  MoveFaults() : file_(test::fault_models({"qwen2"}).at(0)), want_(test::talk(*file_.load(file_.open()))) {}

  bool leaving() const { return std::get<0>(GetParam()); }  // the device that fails is the one it leaves
  const FaultKind& kind() const { return std::get<1>(GetParam()); }

  static void move(models::FailoverModel& model, const engine::Engine& engine,
                   std::unique_ptr<models::LoadedModel> next) {
    std::vector<std::vector<std::int32_t>> pages;
    for (std::uint32_t g = 0; g < engine.groups(); ++g) pages.push_back(engine.pages_in_use(g));
    model.move_to(std::move(next), pages);
  }

  Fate run(std::uint64_t n, Trial& trial, bool& happened) {
    models::FailoverModel model(leaving() ? file_.load(trial) : file_.load(file_.open()),
                                {"opaque:f32", [this] { return file_.load(file_.open()); }});
    engine::Engine engine(model, {.max_sequences = 4, .token_budget = 5});
    Fate fate = Fate::kGoneOn;
    const auto before_step = [&](int step) {
      if (step == 3) {
        auto next = leaving() ? file_.load(file_.open()) : file_.load(trial);
        trial.arm(n);
        try {
          move(model, engine, std::move(next));
        } catch (const Error& error) {
          trial.expect_told(error);
          fate = Fate::kTold;
        }
        happened = trial.happened();
        trial.arm(0);
      }
      // Later to a sound device, but for a lost one, which has nothing that could be brought over.
      if (step == 4 && !(trial.loses() && leaving() && fate == Fate::kTold))
        move(model, engine, file_.load(file_.open()));
    };
    expect_right(trial, test::talk(engine, {}, before_step), want_, Equal::kBits);
    EXPECT_EQ(model.failed_over(), leaving() && trial.loses() && fate == Fate::kTold);
    test::expect_no_page_held(engine);
    return fate;
  }

  test::Quiet quiet_;
  test::FaultFile file_;
  std::vector<Answer> want_;
};

TEST_P(MoveFaults, EveryCallFailsOnce) {
  std::uint64_t n = 1;
  for (; !HasFailure(); ++n) {
    SCOPED_TRACE(n);
    Trial trial(kind(), 0);
    bool happened = false;
    const Fate fate = run(n, trial, happened);
    trial.expect_clean();
    if (!happened) break;
    // What is left last is unloaded, when all has been brought over.
    if (fate == Fate::kGoneOn) {
      EXPECT_TRUE(leaving());
    }
    const char* done = leaving() ? "move, leaving" : "move, arriving";
    test::note_fault(fate == Fate::kTold ? done : "move, unloading", kind(), fate);
  }
  EXPECT_GT(n, 4u);
}

INSTANTIATE_TEST_SUITE_P(Sweep, MoveFaults, testing::Combine(testing::Bool(), testing::ValuesIn(test::kFaultKinds)),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param) ? "Leaving" : "Arriving") +
                                  std::get<1>(each.param).name;
                         });

}  // namespace
}  // namespace backplane
