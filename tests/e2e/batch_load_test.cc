// backplane batch with five hundred requests of a trace's lengths and a KV cache that holds little more than one of
// them, killed halfway and started again: each result is there once, and as if its request had been the only one.
#include <gtest/gtest.h>
#include <signal.h>

#include <random>

#include "tests/e2e/batch_fixture.h"
#include "tests/support/trace.h"

namespace backplane::test {
namespace {

constexpr int kRequests = 500;

std::string traced_requests() {
  std::mt19937 random(20231116);
  const auto lengths = trace_lengths(kRequests, random);
  std::string requests;
  for (int i = 0; i < kRequests; ++i) {
    const TraceLengths& length = lengths[static_cast<std::size_t>(i)];
    std::string prompt(std::clamp(length.prompt * 30 / 4096, 1u, 80u), ' ');
    for (char& c : prompt) c = static_cast<char>('a' + random() % 26);
    Json body = {{"prompt", prompt},
                 {"max_tokens", std::clamp(length.generated * 36 / 450, 1u, 90u)},
                 {"temperature", random() % 2},
                 {"logprobs", 1}};
    if (random() % 8 == 0) body["n"] = 2;
    if (random() % 8 == 0) body["priority"] = static_cast<int>(random() % 3) - 1;
    requests += completion(numbered("r", i), body);
  }
  return requests;
}

class BatchLoad : public Batch, public testing::WithParamInterface<const char*> {
 protected:
  ProgramRun run_on_device(const std::vector<std::string>& more, const ProgramInput& input = {}) const {
    std::vector<std::string> all = arguments(requests_, {"--plugin", BACKPLANE_FAKE_PLUGINS "/opaque", "--device",
                                                         GetParam(), "--fallback", "allow", "--json"});
    all.insert(all.end(), more.begin(), more.end());
    return backplane(all, input);
  }
  const std::string requests_ = traced_requests();
};

TEST_P(BatchLoad, EachGetsWhatItWouldGetAlone) {
  ASSERT_EQ(run_on_device({"--max-running", "1"}).status, 0);
  const auto want = answers(results());
  ASSERT_EQ(want.size(), std::size_t{kRequests});
  std::filesystem::remove(results_path());

  const std::vector<std::string> crowded = {"--max-running", "12", "--step-tokens", "48", "--kv-tokens", "288"};
  ProgramInput killing;
  killing.signal = SIGKILL;
  killing.interrupt_when = [&](const std::string&) { return count_lines(results_path()) >= kRequests / 2; };
  EXPECT_EQ(run_on_device(crowded, killing).status, 128 + SIGKILL);
  const std::size_t before = count_lines(results_path());
  const ProgramRun rest = run_on_device(crowded);
  ASSERT_EQ(rest.status, 0) << rest.err;
  const Json summary = Json::parse(rest.out);
  EXPECT_EQ(summary["kept"], before);
  EXPECT_EQ(summary["completed"], kRequests - before);
  EXPECT_GT(summary["preempted"], 0) << rest.out;
  EXPECT_EQ(answers(results()), want);
}

INSTANTIATE_TEST_SUITE_P(Devices, BatchLoad, testing::Values("cpu:f32", "opaque:f32"),
                         [](const auto& each) { return std::string(each.index == 0 ? "cpu" : "opaque"); });

}  // namespace
}  // namespace backplane::test
