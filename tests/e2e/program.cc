#include "tests/e2e/program.h"

#include <algorithm>
#include <sstream>

namespace backplane::test {

ProgramRun backplane(std::vector<std::string> arguments, const ProgramInput& input) {
  arguments.insert(arguments.begin(), BACKPLANE_PROGRAM);
  return run_program(arguments, input);
}

std::vector<Json> backplane_lines(std::vector<std::string> arguments, const ProgramInput& input, int status) {
  const ProgramRun run = backplane(std::move(arguments), input);
  EXPECT_EQ(run.status, status) << run.err;
  std::vector<Json> values;
  std::istringstream lines(run.out);
  for (std::string line; std::getline(lines, line);) {
    values.push_back(Json::parse(line, nullptr, false));
    EXPECT_FALSE(values.back().is_discarded()) << line.substr(0, 500);
  }
  return values;
}

Json backplane_json(std::vector<std::string> arguments, const ProgramInput& input, int status) {
  const auto values = backplane_lines(std::move(arguments), input, status);
  EXPECT_EQ(values.size(), 1u);
  return values.empty() ? Json() : values.front();
}

void expect_refusal(std::vector<std::string> arguments, int status, const std::string& part,
                    const ProgramInput& input) {
  const bool json = std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
  const ProgramRun run = backplane(std::move(arguments), input);
  EXPECT_EQ(run.status, status) << run.err;
  const std::size_t at = run.err.find("backplane: error: ");
  ASSERT_NE(at, std::string::npos) << run.err;
  const std::string line = run.err.substr(at);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
  EXPECT_NE(line.find(part), std::string::npos) << line;
  if (!json) return;
  const Json answer = Json::parse(run.out, nullptr, false);
  ASSERT_TRUE(answer.is_object()) << run.out;
  EXPECT_NE(answer["error"]["message"].get<std::string>().find(part), std::string::npos) << run.out;
  EXPECT_TRUE(answer["error"]["code"].is_string());
}

std::string best_device() {
  const Json devices = backplane_json({"devices", "--json"})["devices"];
  for (const char* plugin : {"cuda:", "vulkan:", "onednn:"}) {
    for (const Json& device : devices) {
      const std::string name = device["name"];
      if (device["available"] == true && name.starts_with(plugin)) return name;
    }
  }
  return "cpu:f32";
}

}  // namespace backplane::test
