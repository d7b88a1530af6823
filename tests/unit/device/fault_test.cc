// Each call into a plugin fails once, in each way, at once or late: a clear error, nothing leaks, and what the headers
// promise to stay usable does.
#include <optional>

#include "tests/unit/device/runs.h"

namespace backplane {
namespace {

using device::FallbackPolicy;
using test::load_on;
using test::open_opaque;

struct Fault {
  bp_status status;
  bool late;
};

// One step of two sequences.
std::vector<double> one_step(engine::Model& model) {
  std::vector<double> out;
  std::vector<engine::ScoreLine> lines{{test::tokens_of(3, 1), {}}, {test::tokens_of(2, 2), {}}};
  engine::Scorer(model).score(lines, {std::nullopt, true}, [&](const engine::ScoredRows& rows) {
    const auto row = rows.row(0);
    out.insert(out.end(), row.begin(), row.end());
  });
  return out;
}

class FaultTest : public testing::TestWithParam<Fault> {
 protected:
  FaultTest() : path_(write_tiny_llama(folder_, {.layers = 1, .tied = true})) {
    loading_ = calls([](models::LoadedModel&) {});
    all_ = calls([&](models::LoadedModel& model) { expected_ = one_step(model); });
  }

  template <class Work>
  std::uint64_t calls(Work&& work) {
    opaque::Report report;
    const auto model = load_on(path_, open_opaque("opaque:f32", report.option()), test::policy(FallbackPolicy::kAllow));
    work(*model);
    return report.calls;
  }

  // What the n-th call's failure leads to; nothing where the run goes through.
  std::optional<Error> run(std::uint64_t n, opaque::Report& report) {
    std::string options = report.option();
    options.append(",fail_at=").append(std::to_string(n)).append(":").append(std::to_string(GetParam().status));
    if (GetParam().late) options.append(",late=1");
    try {
      const auto model = load_on(path_, open_opaque("opaque:f32", options), test::policy(FallbackPolicy::kAllow));
      try {
        expect_close(one_step(*model));  // where the question was refused, the reference has its share
      } catch (const Error& error) {
        after_failed_step(*model);
        return error;
      }
    } catch (const Error& error) {
      EXPECT_LE(n, loading_) << error.what();
      return error;
    }
    return std::nullopt;
  }

  void expect_close(const std::vector<double>& got) const {
    ASSERT_EQ(got.size(), expected_.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected_[i], 1e-4);
  }

  void after_failed_step(models::LoadedModel& model) {
    if (GetParam().status == BP_DEVICE_LOST) {
      EXPECT_ERROR(one_step(model), ErrorCode::kDevice, "device lost");
      EXPECT_TRUE(model.executor().chosen().lost());
    } else {
      EXPECT_EQ(one_step(model), expected_) << "after a failure the model runs on";
    }
  }

  test::TempFolder folder_;
  std::filesystem::path path_;
  std::uint64_t loading_ = 0, all_ = 0;  // calls
  std::vector<double> expected_;
};

TEST_P(FaultTest, EveryCallFailsOnce) {
  const ErrorCode wanted = GetParam().status == BP_OUT_OF_MEMORY ? ErrorCode::kCapacity : ErrorCode::kDevice;
  ASSERT_GT(all_, loading_ + 20);
  std::uint64_t errors = 0;
  for (std::uint64_t n = 1; n <= all_; ++n) {
    SCOPED_TRACE(n);
    opaque::Report report;
    const std::optional<Error> error = run(n, report);
    EXPECT_EQ(report.live, 0u);
    EXPECT_EQ(report.open, 0u);
    EXPECT_EQ(report.misuse, 0u) << "called a lost device";
    if (!error) {
      // "Not supported" is an answer to the planner's questions; no other failure passes for one.
      EXPECT_EQ(GetParam().status, bp_status{BP_UNSUPPORTED});
      EXPECT_LE(n, loading_);
      continue;
    }
    ++errors;
    EXPECT_EQ(error->code(), wanted) << error->what();
    EXPECT_NE(std::string(error->what()).find("injected failure of call " + std::to_string(n)), std::string::npos)
        << error->what();
    if (HasFailure()) return;
  }
  EXPECT_GT(errors, (all_ - loading_) / 2);
}

std::string fault_name(const testing::TestParamInfo<Fault>& each) {
  constexpr const char* kNames[] = {"", "Unsupported", "OutOfMemory", "Invalid", "DeviceLost", "Internal"};
  return std::string(kNames[each.param.status]) + (each.param.late ? "Late" : "");
}

INSTANTIATE_TEST_SUITE_P(Sweep, FaultTest,
                         testing::Values(Fault{BP_UNSUPPORTED, false}, Fault{BP_OUT_OF_MEMORY, false},
                                         Fault{BP_DEVICE_LOST, false}, Fault{BP_INTERNAL, false},
                                         Fault{BP_INTERNAL, true}, Fault{BP_DEVICE_LOST, true},
                                         Fault{BP_OUT_OF_MEMORY, true}),
                         fault_name);

}  // namespace
}  // namespace backplane
