// A service whose devices are lost one after another, at random calls, while it is crowded: no request fails, and each
// gets what it would have got alone on a device that lives.
#include <deque>
#include <functional>
#include <random>

#include "core/base/log.h"
#include "models/failover_model.h"
#include "tests/support/opaque_device.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/serving/requests.h"

namespace backplane {
namespace {

constexpr std::size_t kRequests = 150;
constexpr std::uint32_t kLosses = 4;

class Losses : public ::testing::TestWithParam<bool> {
 protected:
  Losses() : file_(test::write_tiny_llama(folder_)) { set_log_level(LogLevel::kError); }
  ~Losses() override { set_log_level(LogLevel::kWarning); }

  std::unique_ptr<models::LoadedModel> load_mortal(std::uint64_t call) {
    const std::string option = reports_.emplace_back().option() + (GetParam() ? ",late=1" : "") +
                               ",fail_at=" + std::to_string(call) + ":" + std::to_string(BP_DEVICE_LOST);
    return models::load(models::ModelFile(file_), test::open_opaque("opaque:f32", option), test::open_device("cpu:f32"),
                        test::crowded());
  }

  // Which goes on so many times: each device has the next one in reserve.
  std::unique_ptr<models::LoadedModel> chain(std::uint32_t losses, const std::function<std::uint64_t()>& next_call) {
    if (losses == 0) return test::load("opaque", file_, test::crowded());
    auto reserve = [this, losses, next_call] {
      ++lost_;
      return chain(losses - 1, next_call);
    };
    return std::make_unique<models::FailoverModel>(load_mortal(next_call()), models::Backup{"the next", reserve});
  }

  test::TempFolder folder_;
  std::filesystem::path file_;
  std::deque<opaque::Report> reports_;  // of the devices, in the order they were opened
  std::uint32_t lost_ = 0;
};

TEST_P(Losses, AtAnyStepFailNoRequest) {
  std::vector<test::ServedRequest> requests(kRequests);
  test::fill(requests, 20231111);
  for (test::ServedRequest& each : requests) each.cancel_after = -1;
  const auto begin = [&] {
    for (test::ServedRequest& each : requests) each.answers.assign(each.request.n, {});
  };
  const auto want = test::serial("opaque", file_, requests);

  std::uint64_t loading = 0, all = 0;  // calls
  {
    const auto model = load_mortal(0);
    loading = reports_.back().calls;
    engine::Service service(*model, test::crowded_service(kRequests));
    test::serve(service, requests);
    all = reports_.back().calls - loading;
  }
  ASSERT_GT(all, 2000u);

  std::mt19937 random(7);
  // Together no more than two thirds of the calls that it takes without a loss, so that all are lost before the end.
  const auto next_call = [&] { return loading + 1 + random() % (all / 6); };
  for (int time = 0; time < 3; ++time) {
    begin();
    lost_ = 0;
    const auto model = chain(kLosses, next_call);
    engine::Service service(*model, test::crowded_service(kRequests));
    test::serve(service, requests);
    EXPECT_EQ(lost_, kLosses);
    EXPECT_EQ(test::compare(requests, want).wrong, 0);
    test::expect_all_ended(service, requests);
    EXPECT_GT(service.stats().engine.preempted, 0u);
  }
  for (const opaque::Report& report : reports_) {
    EXPECT_EQ(report.misuse, 0u);
    EXPECT_EQ(report.open, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Told, Losses, ::testing::Values(false, true),
                         [](const auto& each) { return std::string(each.param ? "late" : "at_once"); });

}  // namespace
}  // namespace backplane
