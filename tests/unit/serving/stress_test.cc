// Five hundred requests from four threads, a KV cache that holds little more than one of them, a fifth canceled: all
// others get what they would have got alone, and no page is lost.
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/serving/requests.h"

namespace backplane {
namespace {

constexpr std::size_t kRequests = 500;

class Stress : public ::testing::TestWithParam<const char*> {
 protected:
  test::TempFolder folder_;
};

TEST_P(Stress, EachGetsWhatItWouldGetAlone) {
  const auto file = test::write_tiny_llama(folder_);
  std::vector<test::ServedRequest> requests(kRequests);
  test::fill(requests, 20231116);
  const auto want = test::serial(GetParam(), file, requests);

  const auto model = test::load(GetParam(), file, test::crowded());
  ASSERT_EQ(model->pages(0), 25u);
  engine::Service service(*model, test::crowded_service(kRequests));
  test::serve(service, requests);

  const test::Counts counts = test::compare(requests, want);
  EXPECT_EQ(counts.wrong, 0);
  EXPECT_GT(counts.canceled, 20);
  test::expect_all_ended(service, requests);
  const engine::EngineStats stats = service.between_steps([](engine::Engine& engine) { return engine.stats(); });
  RecordProperty("canceled", counts.canceled);
  RecordProperty("preempted", static_cast<int>(stats.preempted));
  EXPECT_GT(stats.preempted, 50u);
  EXPECT_GT(stats.prefix.found, 0u);
}

std::string name_of(const ::testing::TestParamInfo<const char*>& info) { return info.index == 0 ? "cpu" : "opaque"; }
INSTANTIATE_TEST_SUITE_P(Devices, Stress, ::testing::Values("cpu:f32", "opaque"), name_of);

}  // namespace
}  // namespace backplane
