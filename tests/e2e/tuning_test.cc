#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/e2e/program.h"

namespace backplane::test {
namespace {

class Tuning : public ProgramTest {
 protected:
  void SetUp() override {
    if (!best_device().starts_with("onednn:")) GTEST_SKIP() << "no device here has anything to try";
  }
  ProgramRun run(const std::vector<std::string>& more = {}, const std::string& forbid = "") const {
    std::vector<std::string> arguments = {"run",           model_, "--prompt-ids", "72,105",      "-n", "3",
                                          "--temperature", "0",    "--verbose",    "--ignore-eos"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    ProgramRun done = backplane(
        arguments, {.environment = {{"XDG_CACHE_HOME", folder_.path().string()}, {"BACKPLANE_NO_TUNE", forbid}}});
    EXPECT_EQ(done.status, 0) << done.err;
    return done;
  }
  static std::string setting(const ProgramRun& done) {
    const std::string begin = "backplane: threads and kernels: ";
    const std::size_t at = done.err.find(begin);
    if (at == std::string::npos) return "nothing said: " + done.err;
    return done.err.substr(at + begin.size(), done.err.find('\n', at) - at - begin.size());
  }
  Json kept() const {
    std::ifstream stream(file_);
    return Json::parse(stream, nullptr, false);
  }
  std::filesystem::path file_ = folder_.path() / "backplane/tuned.json";
};

TEST_F(Tuning, IsRememberedAndChangesNoText) {
  const ProgramRun first = run();
  ASSERT_EQ(kept()["entries"].size(), 1u) << first.err;
  Json entries = kept();
  entries["entries"][0]["threads"] = 1;  // as if that had won, in peace
  entries["entries"][0]["disturbed"] = 0;
  entries["entries"][0]["why"] = "a test said so";
  std::ofstream(file_) << entries.dump();
  const ProgramRun second = run();
  EXPECT_EQ(setting(second).find("1 thread ("), 0u) << setting(second);
  EXPECT_NE(setting(second).find("remembered: a test said so"), std::string::npos) << setting(second);
  EXPECT_EQ(second.out, first.out);
}

// The promise under which a trial may choose kernels: the same bits.
TEST_F(Tuning, ChoosesAmongKernelsThatComputeTheSame) {
  run();
  Json entries = kept();
  entries["entries"][0]["options"] = "kernels=AVX2";
  entries["entries"][0]["disturbed"] = 0;
  std::ofstream(file_) << entries.dump();
  const std::vector<std::string> score = {"score", model_, "--json"};
  ProgramInput input{.stdin_text = Json{{"ids", {72, 105, 33, 10, 65}}}.dump() + "\n"};
  const ProgramRun usual = backplane(score, input);
  input.environment = {{"XDG_CACHE_HOME", folder_.path().string()}, {"BACKPLANE_NO_TUNE", ""}};
  const ProgramRun other = backplane(score, input);
  if (other.status == 4) GTEST_SKIP() << "this processor has no AVX2";
  ASSERT_EQ(other.status, 0) << other.err;
  EXPECT_EQ(Json::parse(other.out)["logits"], Json::parse(usual.out)["logits"]);
}

TEST_F(Tuning, IsSwitchedOff) {
  EXPECT_EQ(setting(run({"--no-tune"})), "the default (--no-tune)");
  EXPECT_EQ(setting(run({"--threads", "2"})), "2 threads (--threads says what to use)");
  EXPECT_EQ(setting(run({}, "1")), "the default (BACKPLANE_NO_TUNE is set)");
  EXPECT_EQ(setting(run({"--device", "cpu:f32"})), "the default (the plugin has nothing to try)");
  EXPECT_FALSE(std::filesystem::exists(file_));
}

TEST_F(Tuning, SurvivesADamagedFile) {
  folder_.write("backplane/tuned.json", "{\"entries\": [");
  const ProgramRun done = run();
  const std::size_t at = done.err.find("is damaged");
  EXPECT_NE(at, std::string::npos) << done.err;
  EXPECT_EQ(done.err.find("is damaged", at + 1), std::string::npos);
  EXPECT_EQ(kept()["entries"].size(), 1u);
}

TEST_F(Tuning, IsPassedOverWithoutAPlaceToRemember) {
  folder_.write("backplane", "a file where the folder should be");
  EXPECT_NE(setting(run()).find("no place to remember"), std::string::npos);
}

}  // namespace
}  // namespace backplane::test
