// backplane batch, killed, interrupted, on a device that is lost: no result is lost or doubled.
#include <gtest/gtest.h>
#include <signal.h>

#include <set>

#include "tests/e2e/batch_fixture.h"

namespace backplane::test {
namespace {

TEST_F(Batch, NoResultIsLostOrDoubledByBeingKilled) {
  const std::string requests = many_requests(60, 150);
  const std::vector<std::string> few = {"--max-running", "4"};
  const auto whole = run(requests, few);
  ASSERT_EQ(whole.size(), 60u);
  std::filesystem::remove(results_path());
  int kills = 0;
  for (int start = 0; start < 100; ++start) {
    const std::size_t before = count_lines(results_path()), more = static_cast<std::size_t>(start % 4) * 4;
    ProgramInput killing;
    killing.signal = SIGKILL;
    killing.interrupt_when = [&](const std::string&) { return count_lines(results_path()) >= before + more; };
    const ProgramRun done = backplane(arguments(requests, few), killing);
    if (done.status == 0) break;
    ASSERT_EQ(done.status, 128 + SIGKILL) << done.err;
    ++kills;
  }
  EXPECT_GE(kills, 4);
  const auto got = results();
  ASSERT_EQ(got.size(), 60u);
  EXPECT_EQ(answers(got), answers(whole));
}

TEST_F(Batch, ATornLineIsDoneAgain) {
  const std::string requests = chat("a", {{"max_tokens", 3}}) + chat("b", {{"max_tokens", 4}});
  const auto want = answers(run(requests));
  const std::string whole = read_file(results_path());
  for (const std::size_t cut :
       {std::size_t{1}, std::size_t{30}, whole.find('\n'), whole.find('\n') + 1, whole.size() - 1}) {
    folder_.write("results.jsonl", whole.substr(0, cut));
    const ProgramRun done = backplane(arguments(requests));
    EXPECT_EQ(done.status, 0) << done.err;
    EXPECT_EQ(answers(results()), want) << cut;
  }
}

TEST_F(Batch, KeepsWhatIsDoneWhenInterrupted) {
  const std::string requests = many_requests(60, 150);
  ProgramInput interrupting;
  interrupting.interrupt_when = [&](const std::string&) { return count_lines(results_path()) >= 5; };
  const ProgramRun done = backplane(arguments(requests, {"--max-running", "2"}), interrupting);
  EXPECT_EQ(done.status, 130);
  EXPECT_NE(done.err.find("backplane: error: interrupted"), std::string::npos) << done.err;
  const std::string kept = read_file(results_path());
  EXPECT_GE(parse_lines(kept).size(), 5u);
  EXPECT_LT(parse_lines(kept).size(), 60u);
  EXPECT_EQ(backplane(arguments(requests)).status, 0);
  EXPECT_TRUE(read_file(results_path()).starts_with(kept));
  EXPECT_EQ(parse_lines(read_file(results_path())).size(), 60u);
}

TEST_F(Batch, DoesFailuresAgainWhereAsked) {
  const std::string good = chat("a", {{"max_tokens", 3}});
  (void)run(good + chat("b", {{"temperature", -1}}) + "{\n");
  const std::string fixed = good + chat("b", {{"temperature", 1}, {"max_tokens", 2}});
  EXPECT_EQ(backplane(arguments(fixed)).status, 0);
  EXPECT_EQ(results().at("b")["response"]["status_code"], 400);
  EXPECT_EQ(backplane(arguments(fixed, {"--retry-failed"})).status, 0);
  EXPECT_EQ(results().size(), 2u);
  EXPECT_EQ(results().at("b")["response"]["status_code"], 200);
}

class BatchFailover : public Batch {
 protected:
  // On a device that is lost at its call `lost_at`; never for 0.
  ProgramRun on_opaque(const std::string& requests, int lost_at, const std::vector<std::string>& more) const {
    std::vector<std::string> all = arguments(requests, {"--plugin", BACKPLANE_FAKE_PLUGINS "/opaque", "--device",
                                                        "opaque:f32", "--fallback", "allow", "--max-running", "4"});
    all.insert(all.end(), more.begin(), more.end());
    ProgramInput input;
    if (lost_at != 0) input.environment = {{"BACKPLANE_OPAQUE", numbered("fail_at=", lost_at) + ":4"}};
    return backplane(all, input);
  }
  const std::string requests_ = many_requests(12, 20);
};

TEST_F(BatchFailover, GoesOnElsewhere) {
  int during_steps = 0;
  for (const int lost_at : {200, 400, 600}) {
    std::filesystem::remove(results_path());
    const ProgramRun done = on_opaque(requests_, lost_at, {"--failover", "cpu:f32"});
    ASSERT_EQ(done.status, 0) << done.err;
    during_steps += done.err.find("going on with cpu:f32") != std::string::npos ? 1 : 0;
    EXPECT_EQ(answers(results()).size(), 8u);
    for (const auto& [id, answer] : answers(results())) EXPECT_EQ(answer["status"], 200) << id << answer.dump();
  }
  EXPECT_GT(during_steps, 0);
}

// Without another device it ends, keeping what was done, and goes on at the next start.
TEST_F(BatchFailover, EndsWithALostDevice) {
  int kept = 0;
  for (const int lost_at : {200, 400, 600}) {
    std::filesystem::remove(results_path());
    const ProgramRun done = on_opaque(requests_, lost_at, {});
    EXPECT_EQ(done.status, 4) << lost_at;
    EXPECT_NE(done.err.find("device lost"), std::string::npos) << done.err;
    const std::string before = read_file(results_path());
    kept += !before.empty();
    for (const auto& [id, answer] : answers(results())) EXPECT_EQ(answer["status"], 200) << id << answer.dump();
    EXPECT_EQ(on_opaque(requests_, 0, {}).status, 0);
    EXPECT_TRUE(read_file(results_path()).starts_with(before));
    EXPECT_EQ(results().size(), 12u);
  }
  EXPECT_GT(kept, 0);
}

}  // namespace
}  // namespace backplane::test
