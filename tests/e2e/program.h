// The program under test, and what its answers hold.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/run_program.h"
#include "tests/support/small_chat_model.h"
#include "tests/support/temp_folder.h"

namespace backplane::test {

using Json = nlohmann::json;

// Runs `backplane ARGUMENTS...`.
ProgramRun backplane(std::vector<std::string> arguments, const ProgramInput& input = {});

// Its output as one JSON value, or as one a line. Fails the test when the status isn't `status`.
Json backplane_json(std::vector<std::string> arguments, const ProgramInput& input = {}, int status = 0);
std::vector<Json> backplane_lines(std::vector<std::string> arguments, const ProgramInput& input = {}, int status = 0);

// One line "backplane: error: ..." that holds `part`, and the status; with --json among the arguments also the object.
void expect_refusal(std::vector<std::string> arguments, int status, const std::string& part,
                    const ProgramInput& input = {});

// What a model runs on unless a device is named: the first of these plugins that has a device here.
std::string best_device();

// With a small chat model in a folder of its own.
class ProgramTest : public ::testing::Test {
 protected:
  std::string write_model(const SmallChatModel& model = {}, const std::string& name = "model.gguf") const {
    return folder_.write(name, small_chat_model(model)).string();
  }
  TempFolder folder_;
  std::string model_ = write_model();
};

}  // namespace backplane::test
