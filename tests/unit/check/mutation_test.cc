// The cpu plugin with one op of one layer computing something else: the cross-check names that op and that layer, and
// no other.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "models/load.h"
#include "tests/support/devices.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/check/mutations.h"
#include "tools/check_model.h"
#include "tools/check_steps.h"

namespace backplane::tools::check {
namespace {

constexpr std::uint32_t kLayer = 1;

struct Mutant {
  const bp_tables* cpu = nullptr;
  bp_device_table device{};
  bp_tables tables{};
  Mutation mutation = nullptr;
};
Mutant& mutant() {
  static Mutant instance;
  return instance;
}

bp_status run_mutated(bp_device device, bp_stream stream, bp_context context, const bp_op* op) {
  const Run run = [&](const bp_op& changed) { return mutant().cpu->device->run(device, stream, context, &changed); };
  return op->layer == kLayer && mutant().mutation ? mutant().mutation(*op, run) : run(*op);
}

std::shared_ptr<device::Device> open_mutant(Mutation mutation) {
  Mutant& m = mutant();
  const plugins::DeviceRef ref = test::registry().find_device("cpu:f32");
  m.cpu = &ref.plugin->tables();
  m.device = *m.cpu->device;
  m.device.run = run_mutated;
  m.tables = *m.cpu;
  m.tables.device = &m.device;
  m.mutation = mutation;
  return device::Device::open({&m.tables, "mutant"}, ref.index);
}

// On the mutant alone, or with its first layers on a sound device.
CheckResult check(const std::filesystem::path& path, Mutation mutation, std::uint32_t sound_layers = 0) {
  const models::ModelFile file(path);
  const std::vector<Task> tasks = builtin_tasks(file.spec().vocab_size, 16, file.spec().max_context, 256);
  const Needs needs = needs_of(tasks);
  models::LoadOptions load;
  load.context = needs.context;
  load.max_sequences = needs.sequences;
  load.max_step_tokens = needs.step_tokens;
  load.page_size = 16;
  load.executor.allow = [](std::uint32_t code) { return code < BP_OP_ADD_NORM; };
  const auto exact = test::open_device("cpu:f64"), sound = test::open_device("cpu:f32");
  std::vector<models::DeviceChoice> choices;
  if (sound_layers > 0) choices.push_back({sound, sound_layers});
  choices.push_back({open_mutant(mutation), std::nullopt});
  const auto subject = models::load(file, choices, test::open_device("cpu:f32"), load);
  const auto reference = models::load(file, exact, exact, load);
  PairModel pair(*subject, *reference);
  for (const Task& task : tasks) run(pair, task);
  return pair.result();
}

struct Case {
  const char* name;
  Mutation mutation;
  std::vector<std::string> ops;  // that have it
  const char* first;
  bool gpt2 = false;
};

const std::vector<std::string> kAttention = {"ATTN_DECODE", "ATTN_PREFILL"};
// The twelve of the design of the cross-check, in its order; the third is two.
const Case kCases[] = {
    {"mask_plus_one", see_the_future, kAttention, "layers.1.attention.decode"},
    {"last_key_missing", miss_the_last_key, kAttention, "layers.1.attention.decode"},
    {"rope_base", take_another_rope_base, {"ROPE"}, "layers.1.attention.q_rope"},
    {"rope_interleaved", interleave, {"ROPE"}, "layers.1.attention.q_rope"},
    {"scores_unscaled", forget_the_scale, kAttention, "layers.1.attention.decode"},
    {"f16_exp_without_max", attend_in_halves, kAttention, "layers.1.attention.decode"},
    {"kv_head_by_modulo", take_turns_at_kv_heads, kAttention, "layers.1.attention.decode"},
    {"stale_kv", lose_writes_of_decodes, {"KV_WRITE"}, "layers.1.attention.kv_write"},
    {"wrong_pages", confuse_pages, kAttention, "layers.1.attention."},
    {"bias_missing", forget_the_bias, {"LINEAR"}, "layers.1.attention.qkv", true},
    {"other_eps", take_another_eps, {"NORM"}, "layers.1.attention_norm"},
    {"other_gelu", take_the_other_gelu, {"ACT"}, "layers.1.mlp.act", true},
    {"group_shifted", shift_a_group, {"LINEAR"}, "layers.1.mlp.down"},
};

void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

class MutationTest : public ::testing::TestWithParam<Case> {
 protected:
  std::filesystem::path model() const {
    return GetParam().gpt2 ? test::write_tiny_gpt2(folder_) : test::write_tiny_llama(folder_, {.layers = 3});
  }
  test::TempFolder folder_;
};

TEST_P(MutationTest, IsNamed) {
  const CheckResult result = check(model(), GetParam().mutation);
  EXPECT_EQ(result.verdict(), Verdict::kBug);
  const OpResult* first = result.first(Verdict::kBug);
  ASSERT_NE(first, nullptr) << table(result, true);
  EXPECT_EQ(first->name.rfind(GetParam().first, 0), 0u) << first->name;
  std::printf("| %s | %s %s | %.3g |\n", GetParam().name, first->op.c_str(), first->name.c_str(), first->error);
  const std::vector<std::string>& ops = GetParam().ops;
  for (const OpResult& op : result.ops) {
    if (op.compared == 0 || op.verdict() == Verdict::kRounding) continue;
    EXPECT_EQ(op.layer, kLayer) << op.name;
    EXPECT_NE(std::find(ops.begin(), ops.end(), op.op), ops.end()) << op.name;
  }
}

TEST_P(MutationTest, IsNothingWithoutIt) {
  const CheckResult result = check(model(), nullptr);
  EXPECT_EQ(result.verdict(), Verdict::kRounding) << table(result, true);
  EXPECT_EQ(result.runs_not_compared(), 0u);
}

TEST_P(MutationTest, IsNamedOnTheSecondOfTwoDevices) {
  const CheckResult result = check(model(), GetParam().mutation, kLayer);
  EXPECT_EQ(result.verdict(), Verdict::kBug);
  const OpResult* first = result.first(Verdict::kBug);
  ASSERT_NE(first, nullptr) << table(result, true);
  EXPECT_EQ(first->name.rfind(GetParam().first, 0), 0u) << first->name;
  EXPECT_EQ(result.runs_not_compared(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, MutationTest, ::testing::ValuesIn(kCases),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace backplane::tools::check
