// Steps that are run again elsewhere while requests are served: faults are counted by op, and harm nobody.
#include "models/shadow_model.h"

#include <algorithm>

#include "core/base/log.h"
#include "tests/unit/device/runs.h"

namespace backplane {
namespace {

using models::ShadowModel;
using models::ShadowOptions;

// The cpu plugin, but that ROPE in layer 1 pairs the wrong numbers.
bp_status rope_wrongly(bp_device device, bp_stream stream, bp_context context, const bp_op* op) {
  static const bp_device_table& cpu = *test::registry().find_device("cpu:f32").plugin->tables().device;
  if (op->code != BP_OP_ROPE || op->layer != 1) return cpu.run(device, stream, context, op);
  bp_rope_args args = *static_cast<const bp_rope_args*>(op->args);
  args.interleaved ^= 1;
  bp_op changed = *op;
  changed.args = &args;
  return cpu.run(device, stream, context, &changed);
}

std::shared_ptr<device::Device> open_wrong() {
  const plugins::DeviceRef ref = test::registry().find_device("cpu:f32");
  test::TableSet& tables = test::changed_tables(ref.plugin->tables());
  tables.device.run = rope_wrongly;
  return device::Device::open({&tables.tables, "wrong"}, ref.index);
}

// The cpu plugin, but that EMBED fails for so many tokens; any number of them for -1.
std::int64_t failing_tokens = 0;

bp_status embed_or_fail(bp_device device, bp_stream stream, bp_context context, const bp_op* op) {
  const bp_device_table& cpu = *test::registry().find_device("cpu:f32").plugin->tables().device;
  if (op->code == BP_OP_EMBED && failing_tokens != 0) {
    const std::int64_t tokens = static_cast<const bp_embed_args*>(op->args)->ids.shape[0];
    if (failing_tokens < 0 || tokens == failing_tokens) return BP_INTERNAL;
  }
  return cpu.run(device, stream, context, op);
}

std::shared_ptr<device::Device> open_failing() {
  const plugins::DeviceRef ref = test::registry().find_device("cpu:f32");
  test::TableSet& tables = test::changed_tables(ref.plugin->tables());
  tables.device.run = embed_or_fail;
  return device::Device::open({&tables.tables, "failing"}, ref.index);
}

class ShadowTest : public testing::Test {
 protected:
  ShadowTest() : path_(test::write_tiny_llama(folder_, {.layers = 3})), file_(path_) {
    set_log_level(LogLevel::kError);
    options_.max_sequences = 4;
    options_.max_step_tokens = 20;
    options_.executor.allow = [](std::uint32_t code) { return code < BP_OP_ADD_NORM; };
    options_ = models::resolve(options_, file_.spec(), {test::open_opaque(), test::open_device("cpu:f32")});
  }
  ~ShadowTest() override {
    set_log_level(LogLevel::kWarning);
    failing_tokens = 0;
  }

  std::unique_ptr<models::LoadedModel> load(std::shared_ptr<device::Device> device) const {
    return models::load(file_, std::move(device), test::open_device("cpu:f32"), options_);
  }

  test::TempFolder folder_;
  std::filesystem::path path_;
  models::ModelFile file_;
  models::LoadOptions options_;
};

TEST_F(ShadowTest, SoundDevicesAgree) {
  const std::vector<TokenId> expected = test::generate_two(*load(test::open_opaque()));
  ShadowModel model(load(test::open_opaque()), load(test::open_device("cpu:f32")), {.rate = 1, .tie = 1e-5});
  EXPECT_EQ(test::generate_two(model), expected);
  const models::ShadowReport report = model.report();
  EXPECT_GT(report.steps, 5u);
  EXPECT_EQ(report.sampled, report.steps);
  EXPECT_GT(report.rows, 10u);
  EXPECT_EQ(report.disagreements + report.failures, 0u);
  EXPECT_GT(report.largest_difference, 0);
  EXPECT_LT(report.largest_difference, 1e-4);
  EXPECT_LT(report.mean_kl(), 1e-8);
}

TEST_F(ShadowTest, NamesTheOpThatIsWrong) {
  ShadowModel model(load(open_wrong()), load(test::open_device("cpu:f32")), {.rate = 1});
  const std::vector<TokenId> got = test::generate_two(model);
  EXPECT_EQ(got, test::generate_two(*load(open_wrong()))) << "requests get what the device in use gives";
  const models::ShadowReport report = model.report();
  ASSERT_GT(report.disagreements, 0u);
  ASSERT_FALSE(report.by_op.empty());
  for (const auto& [op, count] : report.by_op) {
    EXPECT_TRUE(op == "layers.1.attention.q_rope" || op == "layers.1.attention.k_rope") << op;
  }
  for (const models::Disagreement& each : report.latest) {
    EXPECT_NE(each.got, each.want);
    EXPECT_GT(each.margin, 0.02);
    EXPECT_GT(each.error, 0.01);
  }
}

TEST_F(ShadowTest, SamplesTheSameStepsEachTime) {
  std::vector<std::uint64_t> sampled;
  for (int i = 0; i < 2; ++i) {
    ShadowModel model(load(test::open_device("cpu:f32")), load(test::open_device("cpu:f32")), {.rate = 0.5, .seed = 4});
    test::generate_two(model);
    sampled.push_back(model.report().sampled);
    EXPECT_LT(sampled.back(), model.report().steps);
  }
  EXPECT_GT(sampled[0], 0u);
  EXPECT_EQ(sampled[0], sampled[1]);
  ShadowModel never(load(test::open_device("cpu:f32")), load(test::open_device("cpu:f32")), {.rate = 0});
  test::generate_two(never);
  EXPECT_EQ(never.report().sampled, 0u);
}

TEST_F(ShadowTest, ALostShadowHarmsNobody) {
  const std::vector<TokenId> expected = test::generate_two(*load(test::open_device("cpu:f32")));
  opaque::Report device;
  ShadowModel model(
      load(test::open_device("cpu:f32")),
      load(test::open_opaque("opaque:f32", device.option() + ",fail_at=0:" + std::to_string(BP_DEVICE_LOST))),
      {.rate = 1});
  device.fail_at = device.calls + 60;
  EXPECT_EQ(test::generate_two(model), expected);
  const models::ShadowReport report = model.report();
  EXPECT_EQ(report.failures, 1u);
  EXPECT_LT(report.sampled, report.steps);
  EXPECT_NE(report.failure.find("opaque"), std::string::npos) << report.failure;
}

TEST_F(ShadowTest, OneThatFailsAgainAndAgainIsDropped) {
  const std::vector<TokenId> expected = test::generate_two(*load(test::open_device("cpu:f32")));
  const auto record = std::make_shared<models::ShadowRecord>();
  {
    ShadowModel model(load(test::open_device("cpu:f32")), load(open_failing()), {.rate = 1, .record = record});
    failing_tokens = -1;
    EXPECT_EQ(test::generate_two(model), expected);
  }
  const models::ShadowReport report = record->report();  // outlives the model
  EXPECT_EQ(report.failures, 3u);
  EXPECT_TRUE(report.dropped);
  EXPECT_EQ(report.sampled, 0u);
  EXPECT_GT(report.steps, 5u);
}

// Where one token of a disagreement is looked at alone, the shadow fails; where it is run with others, it doesn't.
TEST_F(ShadowTest, ADisagreementCountsThoughTheLookAtItFails) {
  ShadowModel model(load(open_wrong()), load(open_failing()), {.rate = 1});
  failing_tokens = 1;
  EXPECT_EQ(test::generate_two(model), test::generate_two(*load(open_wrong())));
  const models::ShadowReport report = model.report();
  EXPECT_GT(report.failures, 0u);
  const auto unnamed = [](const models::Disagreement& each) { return each.op.empty(); };
  EXPECT_TRUE(std::any_of(report.latest.begin(), report.latest.end(), unnamed));
  EXPECT_EQ(report.latest.size(), report.disagreements);
}

TEST_F(ShadowTest, RefusesWhatCannotBeCompared) {
  EXPECT_ERROR(ShadowModel(load(test::open_device("cpu:f32")), load(test::open_device("cpu:f32")), {.rate = 1.5}),
               ErrorCode::kUsage, "rate");
  models::LoadOptions other = options_;
  other.page_size = 24;
  EXPECT_ERROR(ShadowModel(load(test::open_device("cpu:f32")),
                           models::load(file_, test::open_device("cpu:f32"), test::open_device("cpu:f32"), other)),
               ErrorCode::kUsage, "KV pages");
}

}  // namespace
}  // namespace backplane
