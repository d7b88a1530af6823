// A device that is lost in the middle of a run or a score, and another named to go on with.
#include <gtest/gtest.h>

#include "tests/e2e/program.h"

namespace backplane::test {
namespace {

constexpr const char* kPlugin = BACKPLANE_FAKE_PLUGINS "/opaque";

std::size_t lines_with(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// Loses the device at its n-th call; never for 0.
ProgramInput losing(std::uint64_t n, std::string stdin_text = {}) {
  ProgramInput input{.stdin_text = std::move(stdin_text)};
  if (n != 0) input.environment = {{"BACKPLANE_OPAQUE", "fail_at=" + std::to_string(n) + ":4"}};
  return input;
}

class FailoverProgram : public ProgramTest {
 protected:
  ProgramRun on_opaque(std::vector<std::string> arguments, const ProgramInput& input, const char* failover) const {
    for (const char* more : {"--plugin", kPlugin, "--device", "opaque:f32", "--fallback", "allow", "--json"}) {
      arguments.emplace_back(more);
    }
    if (failover) arguments.insert(arguments.end(), {"--failover", failover});
    return backplane(std::move(arguments), input);
  }
  ProgramRun run(std::uint64_t lost_at, const char* failover) const {
    return on_opaque({"run", model_, "--temperature", "0", "--prompt-ids", "72,105,33", "-n", "9", "--ignore-eos"},
                     losing(lost_at), failover);
  }
  ProgramRun score(std::uint64_t lost_at, const char* failover) const {
    return on_opaque({"score", model_, "--chunk", "2"},
                     losing(lost_at, R"({"ids":[72,105,33,10,65,66],"positions":"all","top":1})"
                                     "\n"),
                     failover);
  }
};

TEST_F(FailoverProgram, TheTextGoesOn) {
  const ProgramRun whole = run(0, nullptr);
  ASSERT_EQ(whole.status, 0) << whole.err;
  const Json want = Json::parse(whole.out);
  std::size_t losses = 0, during_steps = 0;
  for (std::uint64_t n = 30; n < 3000; n += 97) {
    SCOPED_TRACE(n);
    const ProgramRun got = run(n, "cpu:f32");
    ASSERT_EQ(got.status, 0) << got.err;
    const Json done = Json::parse(got.out);
    EXPECT_EQ(done["ids"], want["ids"]);
    EXPECT_EQ(done["text"], want["text"]);
    const std::size_t told = lines_with(got.err, "failover: device lost");
    during_steps += lines_with(got.err, "going on with cpu:f32");
    losses += told;
    if (told == 0) break;
    EXPECT_EQ(told, 1u) << got.err;
  }
  EXPECT_GT(losses, 2u);
  EXPECT_GT(during_steps, 0u);
}

TEST_F(FailoverProgram, ScoresGoOn) {
  const ProgramRun whole = score(0, nullptr);
  ASSERT_EQ(whole.status, 0) << whole.err;
  const Json want = Json::parse(whole.out);
  std::size_t losses = 0;
  for (std::uint64_t n = 30; n < 2000; n += 97) {
    SCOPED_TRACE(n);
    const ProgramRun got = score(n, "cpu:f32");
    ASSERT_EQ(got.status, 0) << got.err;
    const Json done = Json::parse(got.out);
    ASSERT_EQ(done["top"].size(), want["top"].size());
    for (std::size_t i = 0; i < want["top"].size(); ++i) EXPECT_EQ(done["top"][i][0]["id"], want["top"][i][0]["id"]);
    const std::size_t told = lines_with(got.err, "failover: device lost");
    losses += told;
    if (told == 0) break;
  }
  EXPECT_GT(losses, 1u);
}

TEST_F(FailoverProgram, WithoutOneTheLossIsTheEnd) {
  const ProgramRun got = run(127, nullptr);
  EXPECT_EQ(got.status, 4);
  EXPECT_NE(got.err.find("device lost"), std::string::npos) << got.err;
}

TEST_F(FailoverProgram, ANameThatIsNoDeviceIsRefusedAtOnce) {
  expect_refusal({"run", model_, "-p", "x", "--failover", "nosuch:0"}, 4, "nosuch");
}

}  // namespace
}  // namespace backplane::test
