// The steps of a check: cut to what a device can have, with every token in them.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "models/load.h"
#include "tests/support/devices.h"
#include "tests/support/tiny_model.h"
#include "tools/check_model.h"
#include "tools/check_steps.h"

namespace backplane::tools::check {
namespace {

using Steps = std::vector<std::vector<std::uint32_t>>;

TEST(CheckSteps, AreCutToWhatAStepMayHold) {
  const std::vector<Task> tasks = builtin_tasks(50, 4, 100, 3);
  ASSERT_EQ(tasks.size(), 6u);
  EXPECT_EQ(tasks[0].steps, (Steps{{3}}));
  EXPECT_EQ(tasks[1].steps, (Steps{{3}, {3}, {3}}));                                           // 9
  EXPECT_EQ(tasks[2].steps, (Steps{{3, 0}, {2, 1}, {0, 3}, {0, 3}}));                          // 5 and 7
  EXPECT_EQ(tasks[5].steps, (Steps{{3, 0}, {1, 0}, {1, 2}, {0, 3}, {0, 3}, {0, 1}, {1, 1}}));  // 4; 1 and 9; 1 and 1
}

TEST(CheckSteps, HoldTheSameTokensWhateverTheLimit) {
  const std::vector<Task> whole = builtin_tasks(50, 16, 100, 1000);
  for (const std::uint32_t most : {1u, 2u, 7u, 20u}) {
    const std::vector<Task> cut = builtin_tasks(50, 16, 100, most);
    ASSERT_EQ(cut.size(), whole.size());
    for (std::size_t i = 0; i < cut.size(); ++i) {
      EXPECT_EQ(cut[i].lines, whole[i].lines);
      std::vector<std::size_t> tokens(cut[i].lines.size());
      for (const auto& step : cut[i].steps) {
        EXPECT_LE(std::accumulate(step.begin(), step.end(), 0u), most);
        for (std::size_t line = 0; line < step.size(); ++line) tokens[line] += step[line];
      }
      for (std::size_t line = 0; line < tokens.size(); ++line) EXPECT_EQ(tokens[line], cut[i].lines[line].size());
    }
    EXPECT_LE(needs_of(cut).step_tokens, most);
  }
}

TEST(CheckSteps, OfShortContextsStayInThem) {
  for (const Task& task : builtin_tasks(50, 16, 9, 256)) {
    for (const auto& line : task.lines) EXPECT_LE(line.size(), 9u);
  }
}

const bp_tables* g_cpu = nullptr;

bp_status caps_of_few_tokens(bp_device device, bp_context context, bp_caps* caps) {
  const bp_status status = g_cpu->device->caps(device, context, caps);
  caps->max_tokens = 3;
  return status;
}

TEST(CheckSteps, SuitADeviceOfThreeTokensAStep) {
  const plugins::DeviceRef ref = test::registry().find_device("cpu:f32");
  g_cpu = &ref.plugin->tables();
  bp_device_table functions = *g_cpu->device;
  functions.caps = caps_of_few_tokens;
  bp_tables tables = *g_cpu;
  tables.device = &functions;
  const auto few = device::Device::open({&tables, "few"}, ref.index), exact = test::open_device("cpu:f64");
  const test::TempFolder folder;
  const models::ModelFile file(test::write_tiny_llama(folder));
  models::LoadOptions load;
  load.max_step_tokens = 256;
  load = models::resolve(load, file.spec(), {few, exact});
  EXPECT_EQ(load.max_step_tokens, 3u);
  const std::vector<Task> tasks =
      builtin_tasks(file.spec().vocab_size, load.page_size, file.spec().max_context, load.max_step_tokens);
  const Needs needs = needs_of(tasks);
  load.context = needs.context;
  load.max_sequences = needs.sequences;
  load.kv_type = DType::kNone;
  load.executor.allow = [](std::uint32_t code) { return code < BP_OP_ADD_NORM; };
  const auto subject = models::load(file, few, test::open_device("cpu:f32"), load);
  const auto reference = models::load(file, exact, exact, load);
  PairModel pair(*subject, *reference);
  for (const Task& task : tasks) run(pair, task);
  EXPECT_EQ(pair.result().verdict(), Verdict::kRounding) << table(pair.result(), true);
  EXPECT_EQ(pair.result().runs_not_compared(), 0u);
  EXPECT_GT(pair.result().runs_compared(), 100u);
}

}  // namespace
}  // namespace backplane::tools::check
