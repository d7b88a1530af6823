// The cpu plugin with one op of one layer computing something else: the cross-check names that op and that layer, and
// no other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "models/load.h"
#include "plugins/sdk/backplane_plugin.hpp"
#include "tests/support/devices.h"
#include "tests/support/tiny_model.h"
#include "tools/check_model.h"
#include "tools/check_steps.h"

namespace backplane::tools::check {
namespace {

constexpr std::uint32_t kLayer = 1;

// Runs an op of the cpu plugin.
using Run = std::function<bp_status(const bp_op& op)>;
using Mutation = bp_status (*)(const bp_op& op, const Run& run);

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

CheckResult check(const std::filesystem::path& path, Mutation mutation) {
  const models::ModelFile file(path);
  const std::vector<Task> tasks = builtin_tasks(file.spec().vocab_size, 16, file.spec().max_context);
  const Needs needs = needs_of(tasks);
  models::LoadOptions load;
  load.context = needs.context;
  load.max_sequences = needs.sequences;
  load.max_step_tokens = needs.step_tokens;
  load.page_size = 16;
  load.executor.allow = [](std::uint32_t code) { return code < BP_OP_ADD_NORM; };
  const auto exact = test::open_device("cpu:f64");
  const auto subject = models::load(file, open_mutant(mutation), test::open_device("cpu:f32"), load);
  const auto reference = models::load(file, exact, exact, load);
  PairModel pair(*subject, *reference);
  for (const Task& task : tasks) run(pair, task);
  return pair.result();
}

bool is_attention(const bp_op& op) { return op.code == BP_OP_ATTN_PREFILL || op.code == BP_OP_ATTN_DECODE; }

template <class Args, class Change>
bp_status changed(const bp_op& op, const Run& run, Change&& change) {
  Args args = *static_cast<const Args*>(op.args);
  change(args);
  bp_op other = op;
  other.args = &args;
  return run(other);
}

// Attention with the positions of its queries moved, where they stay inside their pages.
bp_status move_positions(const bp_op& op, const Run& run, std::int32_t by) {
  if (!is_attention(op)) return run(op);
  const bp_step& given = *static_cast<const bp_attention_args*>(op.args)->step;
  bp_step step = given;
  std::vector<std::int32_t> pos(given.pos, given.pos + given.tokens);
  std::vector<std::int32_t> lengths(given.kv_len, given.kv_len + given.sequences);
  const auto page = static_cast<std::int32_t>(given.page_size);
  for (std::int32_t& p : pos) {
    if ((p + by) / page == p / page && p + by >= 0) p += by;
  }
  for (std::int32_t& length : lengths) {
    if (by > 0 && length % page != 0) length += by;
  }
  step.pos = pos.data();
  step.kv_len = lengths.data();
  if (by > 0) step.max_kv += 1;
  return changed<bp_attention_args>(op, run, [&](bp_attention_args& args) { args.step = &step; });
}

bp_status see_the_future(const bp_op& op, const Run& run) { return move_positions(op, run, 1); }
bp_status miss_the_last_key(const bp_op& op, const Run& run) { return move_positions(op, run, -1); }

bp_status interleave(const bp_op& op, const Run& run) {
  if (op.code != BP_OP_ROPE) return run(op);
  return changed<bp_rope_args>(op, run, [](bp_rope_args& args) { args.interleaved ^= 1; });
}

bp_status forget_the_scale(const bp_op& op, const Run& run) {
  if (!is_attention(op)) return run(op);
  return changed<bp_attention_args>(op, run, [](bp_attention_args& args) { args.scale = 1; });
}

bp_status lose_writes_of_decodes(const bp_op& op, const Run& run) {
  const bool decode = op.code == BP_OP_KV_WRITE && static_cast<const bp_kv_write_args*>(op.args)->step->n_decode == 1;
  return decode ? BP_OK : run(op);
}

// Every sequence reads the pages of the first one, as far as those go.
bp_status confuse_pages(const bp_op& op, const Run& run) {
  if (!is_attention(op)) return run(op);
  const bp_step& given = *static_cast<const bp_attention_args*>(op.args)->step;
  bp_step step = given;
  std::vector<std::int32_t> table(given.page_table,
                                  given.page_table + std::size_t{given.groups} * given.sequences * given.max_pages);
  for (std::size_t i = given.max_pages; i < table.size(); ++i) {
    const std::int32_t first = table[i % given.max_pages];
    if (table[i] >= 0 && first >= 0) table[i] = first;
  }
  step.page_table = table.data();
  return changed<bp_attention_args>(op, run, [&](bp_attention_args& args) { args.step = &step; });
}

// What probabilities in F16 come to: the result has no more digits than they have.
bp_status attend_in_halves(const bp_op& op, const Run& run) {
  const bp_status status = run(op);
  if (!is_attention(op)) return status;
  const auto& args = *static_cast<const bp_attention_args*>(op.args);
  const std::int32_t* starts = args.step->q_start;
  for (std::int32_t t = starts[args.first_sequence]; t < starts[args.last_sequence]; ++t) {
    auto* row =
        reinterpret_cast<float*>(plugin::host_buffer(args.out.buffer).data + args.out.offset + t * args.out.stride[0]);
    for (std::int64_t i = 0; i < args.out.shape[1] * args.out.shape[2]; ++i) {
      row[i] = static_cast<float>(conformance::round_to(DType::kF16, row[i]));
    }
  }
  return status;
}

bp_status take_the_other_gelu(const bp_op& op, const Run& run) {
  if (op.code != BP_OP_ACT) return run(op);
  return changed<bp_activation_args>(op, run, [](bp_activation_args& args) { args.kind = BP_ACT_GELU_ERF; });
}

bp_status forget_the_bias(const bp_op& op, const Run& run) {
  if (op.code != BP_OP_LINEAR) return run(op);
  return changed<bp_linear_args>(op, run, [](bp_linear_args& args) { args.bias = {}; });
}

// The numbers of a row's last group are off by one step of 1/1000.
bp_status shift_a_group(const bp_op& op, const Run& run) {
  const bp_status status = run(op);
  if (op.code != BP_OP_LINEAR || std::strcmp(op.name, "layers.1.mlp.down") != 0) return status;
  const auto& args = *static_cast<const bp_linear_args*>(op.args);
  const auto row = [](const bp_tensor& t, std::int64_t number) {
    return reinterpret_cast<float*>(plugin::host_buffer(t.buffer).data + t.offset + number * t.stride[0]);
  };
  for (std::int64_t t = 0; t < args.x.shape[0]; ++t) {
    float sum = 0;
    for (std::int64_t c = args.x.shape[1] - 32; c < args.x.shape[1]; ++c) sum += row(args.x, t)[c];
    row(args.out, t)[3] += sum / 1000;
  }
  return status;
}

struct Case {
  const char* name;
  Mutation mutation;
  std::vector<std::string> ops;  // that have it
  const char* first;
  bool gpt2 = false;
};

const std::vector<std::string> kAttention = {"ATTN_DECODE", "ATTN_PREFILL"};
const Case kCases[] = {
    {"mask_plus_one", see_the_future, kAttention, "layers.1.attention.decode"},
    {"last_key_missing", miss_the_last_key, kAttention, "layers.1.attention.decode"},
    {"rope_interleaved", interleave, {"ROPE"}, "layers.1.attention.q_rope"},
    {"scores_unscaled", forget_the_scale, kAttention, "layers.1.attention.decode"},
    {"stale_kv", lose_writes_of_decodes, {"KV_WRITE"}, "layers.1.attention.kv_write"},
    {"wrong_pages", confuse_pages, kAttention, "layers.1.attention."},
    {"f16_probabilities", attend_in_halves, kAttention, "layers.1.attention.decode"},
    {"other_gelu", take_the_other_gelu, {"ACT"}, "layers.1.mlp.act", true},
    {"bias_missing", forget_the_bias, {"LINEAR"}, "layers.1.attention.qkv", true},
    {"group_shifted", shift_a_group, {"LINEAR"}, "layers.1.mlp.down"},
};

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

INSTANTIATE_TEST_SUITE_P(All, MutationTest, ::testing::ValuesIn(kCases),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace backplane::tools::check
