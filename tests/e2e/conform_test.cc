// backplane conform: what it prints, writes and returns. What it finds is the business of tests/unit/conformance.
#include <gtest/gtest.h>

#include <regex>

#include "tests/e2e/program.h"

namespace backplane::test {
namespace {

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return {};
  const std::size_t begin = text.find_last_of('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - begin);
}

void expect_counts(const ProgramRun& run, int passed_at_least, const std::string& failed) {
  std::smatch match;
  const std::string line = last_line(run.out);
  const std::regex form("([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped\n?");
  ASSERT_TRUE(std::regex_match(line, match, form)) << run.out << run.err;
  EXPECT_GE(std::stoi(match[1]), passed_at_least);
  EXPECT_EQ(match[2], failed);
}

TEST(Conform, ASoundDevicePasses) {
  const ProgramRun run = backplane({"conform", "template:0"});
  EXPECT_EQ(run.status, 0) << run.out << run.err;
  EXPECT_EQ(run.out.rfind("template:0 against cpu:f64, seed 1\n", 0), 0u) << run.out;
  expect_counts(run, 50, "0");
}

TEST(Conform, AFilterOfNothingSaysSo) {
  const ProgramRun run = backplane({"conform", "template:0", "--filter", "nothing of this name"});
  EXPECT_EQ(run.status, 6) << run.out << run.err;
  EXPECT_NE(run.out.find("No case has 'nothing of this name' in its name"), std::string::npos) << run.out;
}

TEST(Conform, AFileThatIsNotThereIsNoDevice) {
  const ProgramRun run = backplane({"conform", "/no/such/plugin.so"});
  EXPECT_EQ(run.status, 2) << run.out << run.err;
  EXPECT_NE(run.err.find("there is no such file"), std::string::npos) << run.err;
}

TEST(Conform, AFaultOfADeterministicDeviceIsFoundAgainOnOne) {
  const ProgramRun run = backplane({"conform", FAULTY_PLUGIN, "--options", "fault=eps", "--filter", "NORM/rms/*rows",
                                    "--seed", "5", "--deterministic"});
  EXPECT_EQ(run.status, 6) << run.out << run.err;
  EXPECT_NE(run.out.find("--options fault=eps --deterministic --filter"), std::string::npos) << run.out;
}

TEST(Conform, AFaultIsToldWithACommandThatFindsItAgain) {
  const TempFolder folder;
  const std::string json = (folder.path() / "a.json").string(), junit = (folder.path() / "a.xml").string();
  const ProgramRun run = backplane({"conform", FAULTY_PLUGIN, "--options", "fault=eps", "--filter", "NORM/rms/*rows",
                                    "--seed", "5", "--json", json, "--junit", junit});
  EXPECT_EQ(run.status, 6) << run.out << run.err;
  expect_counts(run, 0, "1");
  const Json report = Json::parse(read_file(json));
  ASSERT_EQ(report["cases"].size(), 1u);
  const Json failed = report["cases"][0];
  EXPECT_EQ(failed["name"], "NORM/rms/small_rows/F32");
  EXPECT_GT(failed["error"], 4);
  const std::string replay = failed["replay"];
  const std::string plugin = FAULTY_PLUGIN;  // quoted where the folder has a space in its name
  const std::string word = plugin.find(' ') == std::string::npos ? plugin : "'" + plugin + "'";
  EXPECT_EQ(replay, "backplane conform " + word + " --options fault=eps --filter NORM/rms/small_rows/F32 --seed 5");
  EXPECT_NE(run.out.find(replay), std::string::npos) << run.out;
  EXPECT_NE(read_file(junit).find("failures=\"1\""), std::string::npos);

  const std::string program = BACKPLANE_PROGRAM;
  const ProgramRun again = run_program({"/bin/sh", "-c", "'" + program + "'" + replay.substr(replay.find(' '))});
  EXPECT_EQ(again.status, 6) << again.out << again.err;
  EXPECT_NE(again.out.find(failed["reason"].get<std::string>()), std::string::npos) << again.out;
}

TEST(Conform, NothingTriedProvesNothing) {
  for (const char* filter : {"no such case", "ROPE/"}) {
    const ProgramRun run = backplane({"conform", "template:0", "--filter", filter});
    EXPECT_EQ(run.status, 6) << run.out;
    expect_counts(run, 0, "0");
  }
}

TEST(Conform, ListsWithoutRunning) {
  const ProgramRun run =
      backplane({"conform", FAULTY_PLUGIN, "--options", "crash=1", "--filter", "NORM/layer", "--list"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.out.find("NORM/layer/heads/F32\n"), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find("passed"), std::string::npos) << run.out;
}

TEST(Conform, ACrashNamesItsCase) {
  const ProgramRun run = backplane({"conform", FAULTY_PLUGIN, "--options", "crash=1", "--filter", "NORM/layer"});
  EXPECT_EQ(run.status, 128 + SIGABRT);
  EXPECT_NE(run.err.find("the plugin crashed in NORM/layer/T0_H8/F32"), std::string::npos) << run.err;
}

TEST(Conform, WrongUse) {
  expect_refusal({"conform"}, 2, "target is required");
  expect_refusal({"conform", "no_such_device"}, 4, "no_such_device");
  expect_refusal({"conform", "template:0", "--device", "0"}, 2, "--device");
  expect_refusal({"conform", FAULTY_PLUGIN, "--device", "7"}, 4, "faulty:7");
  expect_refusal({"conform", "template:0", "--options", "no_such_option=1"}, 4, "no_such_option");
  expect_refusal({"conform", "template:0", "--filter", "abi/", "--junit", "/no/such/folder/x"}, 2, "/no/such/folder/x");
}

}  // namespace
}  // namespace backplane::test
