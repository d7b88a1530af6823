// Plugins of other versions in today's core: one built against an older header, in plain C, and one built with the SDK
// against a later one (tests/plugins/versions). The loader is the program's own.
#include <gtest/gtest.h>

#include "core/base/abi_call.h"
#include "plugins/host/host_table.h"
#include "plugins/host/registry.h"
#include "tests/unit/versions/session.h"

namespace backplane::versions_test {
namespace {

// A plugin, loaded as the program loads it, and a call with its reason.
class Loaded {
 public:
  explicit Loaded(const char* name)
      : found_(plugins::Registry({.plugins = {VERSION_PLUGINS}, .environment = {}, .folders = {}}).find_device(name)) {}

  const plugins::Plugin& plugin() const { return *found_.plugin; }
  const bp_tables& tables() const { return plugin().tables(); }
  const std::string& name() const { return found_.name; }
  bp_context context() { return call_.context(); }
  Session session() { return Session(tables(), found_.index, context(), reason_); }

 private:
  plugins::DeviceRef found_;
  AbiCall call_;
  std::string reason_;
};

// Built against the header that ends earlier, and against each that was released.
class OldPlugin : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Versions, OldPlugin, ::testing::Values(OLD_PLUGINS),
                         [](const auto& each) { return std::string(each.param); });

TEST_P(OldPlugin, FillsWhatItKnows) {
  const Loaded old(GetParam());
  EXPECT_EQ(old.name(), GetParam() + std::string(":0")) << "without describe a device is named by its index";
  EXPECT_LE(old.plugin().abi_minor(), std::uint32_t{BP_ABI_MINOR});
  EXPECT_NE(old.tables().device->run, nullptr);
  EXPECT_EQ(old.tables().device->prepare, nullptr);
  EXPECT_EQ(old.tables().device->uncompile, nullptr);
  EXPECT_EQ(old.tables().buffer->map, nullptr);
  EXPECT_EQ(old.tables().stream->create, nullptr);
  EXPECT_EQ(old.tables().kv->create, nullptr);
  EXPECT_EQ(old.tables().comm->create, nullptr);
}

TEST_P(OldPlugin, LeavesLaterCapabilitiesZero) {
  Loaded old(GetParam());
  const Session session = old.session();
  Watched<bp_caps> caps;
  caps->memory_free = 0;
  ASSERT_EQ(old.tables().device->caps(session.device(), session.context(), caps.get()), BP_OK);
  EXPECT_TRUE(caps.intact());
  EXPECT_STREQ(caps->description, "Built long ago");
  EXPECT_EQ(caps->max_buffer_bytes, 0u);
  EXPECT_EQ(caps->memory_total, 0u);
}

TEST_P(OldPlugin, RunsABlock) {
  Loaded old(GetParam());
  Session session = old.session();
  run_linear(session);
  run_block(session);
}

TEST_P(OldPlugin, DeclinesWhatCameLater) {
  Loaded old(GetParam());
  Session session = old.session();
  bp_linear_args args{};
  args.x = session.put({1, 2}, {1, 2});
  args.weight.tensor = session.put({1, 2}, {3, 4});
  args.out = args.residual = session.put({1, 1}, Floats(1));
  args.alpha = 1;
  EXPECT_EQ(session.ask(BP_OP_LINEAR_ADD, args), BP_UNSUPPORTED);
  EXPECT_EQ(session.run(BP_OP_LINEAR_ADD, args), BP_UNSUPPORTED);
  bp_support support{};
  ASSERT_EQ(session.ask(BP_OP_LINEAR, args, BP_FEATURE_TRANSPOSED, &support), BP_OK);
  EXPECT_EQ(support.features & BP_FEATURE_TRANSPOSED, 0u) << "what it has never heard of it must not claim";
  EXPECT_EQ(support.quantized_activation_type, bp_type{BP_TYPE_NONE});
  args.weight.tensor.type = BP_TYPE_MXFP4;
  EXPECT_EQ(session.ask(BP_OP_LINEAR, args), BP_UNSUPPORTED);
}

TEST(LaterPlugin, IsLoadedWithoutWhatCameLater) {
  const Loaded later("later");
  EXPECT_EQ(later.name(), "later:0");
  EXPECT_EQ(later.plugin().abi_minor(), BP_ABI_MINOR + 1u);
  EXPECT_EQ(later.tables().size, sizeof(bp_tables));
  EXPECT_EQ(later.tables().device->size, sizeof(bp_device_table));
  EXPECT_NE(later.tables().buffer->copy, nullptr);
  EXPECT_EQ(later.tables().device->uncompile, nullptr);
}

TEST(LaterPlugin, WritesNoMoreThanThisCoreKnows) {
  Loaded later("later");
  Session session = later.session();
  Watched<bp_caps> caps;
  ASSERT_EQ(later.tables().device->caps(session.device(), session.context(), caps.get()), BP_OK);
  EXPECT_TRUE(caps.intact());
  EXPECT_STREQ(caps->description, "Built later");
  Watched<bp_device_info> info;
  ASSERT_EQ(later.tables().driver->describe(session.context(), 0, info.get()), BP_OK);
  EXPECT_TRUE(info.intact());
}

TEST(LaterPlugin, RunsWithShorterArguments) {
  Loaded later("later");
  Session session = later.session();
  run_linear(session);  // Session fences each struct at this core's size
  bp_norm_args norm{};
  norm.x = norm.out = session.put({1, 2}, {3, 4});
  norm.kind = BP_NORM_RMS;
  EXPECT_EQ(session.ask(BP_OP_NORM, norm), BP_UNSUPPORTED);
}

TEST(LaterPlugin, MayClaimWhatThisCoreNeverAsksFor) {
  Loaded later("later");
  Session session = later.session();
  bp_linear_args args{};
  args.x = session.put({1, 2}, {1, 2});
  args.weight.tensor = session.put({1, 2}, {3, 4});
  args.out = session.put({1, 1}, Floats(1));
  bp_support support{};
  ASSERT_EQ(session.ask(BP_OP_LINEAR, args, 0, &support), BP_OK);
  EXPECT_NE(support.features >> 50, 0u);
  EXPECT_NE(support.flags >> 20, 0u);
}

}  // namespace
}  // namespace backplane::versions_test
