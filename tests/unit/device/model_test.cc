// Whole models on devices that can do all, some or nearly nothing: the results are those of cpu:f32.
#include "tests/unit/device/runs.h"

namespace backplane {
namespace {

using device::ExecutorOptions;
using device::FallbackPolicy;
using test::load_on;
using test::open_opaque;
using test::Outputs;
using test::run_all;

constexpr const char* kSingleOps[] = {"EMBED",       "NORM", "LINEAR", "ROPE", "KV_WRITE",    "ATTN_PREFILL",
                                      "ATTN_DECODE", "ACT",  "GLU",    "ADD",  "GATHER_ROWS", "CAST"};

// All fused ops of the opaque device, to be added to a list of ops that it lacks.
constexpr const char* kFusedOps = "ADD_NORM+GATEUP_GLU+QKV_ROPE_WRITE+LINEAR_ADD+HEAD_ARGMAX+LINEAR_ACT";

// Written once for all tests.
struct Model {
  std::string name;
  std::filesystem::path path;
  Outputs reference;  // of cpu:f32
};

const std::vector<Model>& all_models() {
  static const test::TempFolder folders[6];
  static const std::vector<Model> all = [] {
    std::vector<Model> made{
        {"llama", write_tiny_llama(folders[0], {.layers = 3}), {}},
        {"qwen3", write_tiny_llama(folders[1], {.qk_norm = true, .tied = true, .type = test::TinyType::kF16}), {}},
        {"windowed", write_tiny_llama(folders[2], {.window = 7, .type = test::TinyType::kQ8_0}), {}},
        {"quantized", write_tiny_llama(folders[3], {.tied = true, .type = test::TinyType::kQ5_0}), {}},
        {"gpt2", write_tiny_gpt2(folders[4]), {}},
        {"wide", write_tiny_llama(folders[5], {.qk_norm = true, .type = test::TinyType::kQ8_0, .head_dim = 16}), {}},
    };
    const auto cpu = test::open_device("cpu:f32");
    for (Model& model : made) {
      model.reference = run_all(*load_on(model.path, cpu, test::policy(FallbackPolicy::kDeny), cpu));
    }
    return made;
  }();
  return all;
}

class DeviceModelTest : public testing::TestWithParam<std::size_t> {
 protected:
  const Model& model() const { return all_models()[GetParam()]; }
  // Runs on an opaque device, compares, and returns the number of ops that fell back.
  std::uint64_t check(const std::string& options, const std::set<std::string>& without_tables = {},
                      FallbackPolicy policy = FallbackPolicy::kAllow) {
    SCOPED_TRACE(options);
    opaque::Report report;
    std::uint64_t fallbacks = 0;
    {
      std::string all = report.option();
      if (!options.empty()) all.append(",").append(options);
      const auto chosen = open_opaque("opaque:f32", all, without_tables);
      const auto loaded = load_on(model().path, chosen, test::policy(policy));
      expect_same(run_all(*loaded), model().reference);
      for (const auto& entry : loaded->executor().ledger().entries()) fallbacks += entry.count;
    }
    EXPECT_EQ(report.live, 0u);
    EXPECT_EQ(report.misuse, 0u);
    EXPECT_EQ(report.open, 0u);
    return fallbacks;
  }
};

TEST_P(DeviceModelTest, EverythingRunsOnTheDevice) {
  EXPECT_EQ(check("", {}, FallbackPolicy::kDeny), 0u);
  EXPECT_EQ(check("import=F32", {}, FallbackPolicy::kDeny), 0u) << "other types are converted";
}

TEST_P(DeviceModelTest, EachOpTakenAway) {
  for (const char* op : kSingleOps) check(std::string("without=") + op);
  for (const char* op : kSingleOps) check(std::string("without=") + kFusedOps + "+" + op);
  for (const char* op : {"ADD_NORM", "GATEUP_GLU", "QKV_ROPE_WRITE", "LINEAR_ADD", "HEAD_ARGMAX", "LINEAR_ACT"}) {
    EXPECT_EQ(check(std::string("without=") + op, {}, FallbackPolicy::kDeny), 0u);
  }
}

TEST_P(DeviceModelTest, OnlyLinear) {
  EXPECT_GT(
      check(std::string("without=EMBED+NORM+ROPE+KV_WRITE+ATTN_PREFILL+ATTN_DECODE+ACT+GLU+ADD+GATHER_ROWS+CAST+") +
            kFusedOps),
      0u);
}

TEST_P(DeviceModelTest, NothingAtAll) {
  EXPECT_GT(check(std::string("without=EMBED+NORM+LINEAR+ROPE+KV_WRITE+ATTN_PREFILL+ATTN_DECODE+ACT+GLU+ADD+"
                              "GATHER_ROWS+CAST+") +
                  kFusedOps),
            0u);
}

TEST_P(DeviceModelTest, EachTableTakenAway) {
  for (const char* table : {"weights", "kv", "stream", "graph"}) check("", {table});
  for (const char* group : {"prepare", "compile", "events", "copy", "map", "import_host", "native_pages", "graph"}) {
    EXPECT_EQ(check("", {group}, FallbackPolicy::kDeny), 0u) << group;
  }
  EXPECT_EQ(check("no_weights=1", {"weights"}, FallbackPolicy::kDeny), 0u) << "converted to F32, all native";
  EXPECT_EQ(check("", {"stream"}, FallbackPolicy::kDeny), 0u);
  EXPECT_GT(check("no_kv=1"), 0u);
  check("no_stream=1");
  check("no_transposed=1");
  check("no_embed=1");
  check("no_graph=1,no_copy=1,no_map=1,no_import=1");
  check("uncapturable=LINEAR");
  check("no_weights=1,no_kv=1,no_stream=1", {"weights", "kv", "stream"});
}

TEST_P(DeviceModelTest, MemorySharedWithAnAsynchronousDevice) {
  EXPECT_EQ(check("visible=1", {}, FallbackPolicy::kDeny), 0u);
  for (const char* op : kSingleOps) check(std::string("visible=1,without=") + kFusedOps + "+" + op);
  for (const char* lacks : {"no_map", "no_import", "no_copy"}) check(std::string("visible=1,") + lacks + "=1");
  check("visible=1,no_weights=1,no_kv=1", {"kv"});
}

TEST_P(DeviceModelTest, OpsThatWantAnotherActivationType) {
  const auto device = open_opaque("opaque:f32", "want_f16=LINEAR+NORM+GLU+ROPE+ATTN_DECODE+KV_WRITE");
  const auto loaded = load_on(model().path, device, test::policy(FallbackPolicy::kDeny));
  const Outputs got = run_all(*loaded);
  const double worst = worst_difference(got, model().reference);
  EXPECT_LE(worst, 0.08) << "eleven bits through two layers";
  EXPECT_GT(worst, 1e-5) << "activations were not rounded, so the casts did not happen";
  EXPECT_TRUE(loaded->executor().ledger().entries().empty());
}

TEST_P(DeviceModelTest, HalfPrecisionDevice) {
  for (const char* options : {"", "without=NORM", "without=LINEAR+ADD+LINEAR_ADD+LINEAR_ACT+GATEUP_GLU+QKV_ROPE_WRITE",
                              "no_kv=1", "without=CAST"}) {
    SCOPED_TRACE(options);
    const auto loaded = load_on(model().path, open_opaque("opaque:f16", options), test::policy(FallbackPolicy::kAllow));
    EXPECT_EQ(loaded->executor().activation_type(), DType::kF16);
    EXPECT_LE(worst_difference(run_all(*loaded), model().reference), 0.08);
  }
}

TEST_P(DeviceModelTest, FusedOpsTurnedOffChangeNoBit) {
  const auto cpu = test::open_device("cpu:f32");
  for (const std::uint32_t off : {BP_OP_QKV_ROPE_WRITE, BP_OP_GATEUP_GLU, BP_OP_LINEAR_ADD, BP_OP_LINEAR_ACT}) {
    SCOPED_TRACE(off);
    ExecutorOptions options = test::policy(FallbackPolicy::kDeny);
    options.allow = [off](std::uint32_t code) { return code != off; };
    const auto loaded = load_on(model().path, cpu, options, cpu);
    EXPECT_EQ(run_all(*loaded), model().reference);
    EXPECT_TRUE(loaded->executor().ledger().entries().empty());
  }
}

TEST_P(DeviceModelTest, TwoCpuDevicesShareMemory) {
  for (const std::uint32_t off : {BP_OP_EMBED, BP_OP_NORM, BP_OP_LINEAR, BP_OP_KV_WRITE, BP_OP_ATTN_DECODE}) {
    ExecutorOptions options = test::policy(FallbackPolicy::kAllow);
    options.allow = [off](std::uint32_t code) { return code != off && code < BP_OP_ADD_NORM; };
    const auto loaded = load_on(model().path, test::open_device("cpu:f32"), options);
    EXPECT_EQ(run_all(*loaded), model().reference) << off;
    for (const auto& entry : loaded->executor().ledger().entries()) EXPECT_EQ(entry.bytes_staged, 0u) << entry.op;
  }
}

TEST_P(DeviceModelTest, TemplatePlugin) {
  const auto loaded = load_on(model().path, test::open_device("template"), test::policy(FallbackPolicy::kAllow));
  expect_same(run_all(*loaded), model().reference);
  for (const auto& entry : loaded->executor().ledger().entries()) EXPECT_NE(entry.op, "LINEAR") << entry.reason;
}

std::string model_name(const testing::TestParamInfo<std::size_t>& each) {
  constexpr const char* kNames[] = {"Llama", "Qwen3", "Windowed", "Quantized", "Gpt2", "Wide"};
  return kNames[each.param];
}

INSTANTIATE_TEST_SUITE_P(Tiny, DeviceModelTest, testing::Range<std::size_t>(0, 6), model_name);

}  // namespace
}  // namespace backplane
