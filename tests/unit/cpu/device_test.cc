// The driver, capabilities, buffers.
#include "tests/unit/cpu/rig.h"

namespace backplane::cpu_test {
namespace {

class DeviceTest : public CpuTest {};
INSTANTIATE_TEST_SUITE_P(Devices, DeviceTest, ::testing::Values(0U, 1U), device_name);

TEST(DriverTest, NamesItsDevices) {
  auto& driver = Library::get().driver;
  EXPECT_STREQ(driver.name, "cpu");
  EXPECT_LE(driver.abi_minor, BP_ABI_MINOR);
  std::uint32_t count = 0;
  ASSERT_EQ(driver.count(nullptr, &count), BP_OK);
  ASSERT_EQ(count, 2u);
  const char* names[] = {"f32", "f64"};
  for (std::uint32_t i = 0; i < 2; ++i) {
    bp_device_info info{};
    info.size = sizeof(info);
    ASSERT_EQ(driver.describe(nullptr, i, &info), BP_OK);
    EXPECT_STREQ(info.name, names[i]);
    EXPECT_NE(std::string(info.description).find("reference"), std::string::npos);
    EXPECT_GT(info.memory_total, 1u << 20);
  }
}

TEST(DriverTest, OpensWithWhatItKnows) {
  auto& driver = Library::get().driver;
  std::string reason;
  const auto open = [&](std::uint32_t index, std::uint64_t flags, const char* options) {
    bp_open_params params{};
    params.size = sizeof(params);
    params.flags = flags;
    params.options = options;
    bp_device device = nullptr;
    const bp_status status = driver.open(reinterpret_cast<bp_context>(&reason), index, &params, &device);
    if (status == BP_OK) driver.close(device);
    return status;
  };
  EXPECT_EQ(open(0, BP_OPEN_DETERMINISTIC, ""), BP_OK);
  EXPECT_EQ(open(2, 0, nullptr), BP_INVALID);
  EXPECT_EQ(open(0, 2, nullptr), BP_UNSUPPORTED);
  EXPECT_EQ(open(0, 0, "speed=11"), BP_INVALID);
  EXPECT_NE(reason.find("speed"), std::string::npos);
  EXPECT_EQ(open(0, 0, "speed"), BP_INVALID);
}

TEST_P(DeviceTest, Capabilities) {
  Rig rig(GetParam());
  bp_caps caps{};
  caps.size = sizeof(caps);
  ASSERT_EQ(Library::get().device.caps(rig.device(), rig.context(), &caps), BP_OK);
  EXPECT_EQ(caps.flags, BP_CAP_HOST_VISIBLE | BP_CAP_UNIFIED | BP_CAP_DETERMINISTIC | BP_CAP_BATCH_INVARIANT);
  EXPECT_EQ(caps.activation_type, rig.real());
  EXPECT_TRUE(plugin::has_type(caps.weight_types, BP_TYPE_MXFP4));
  EXPECT_FALSE(plugin::has_type(caps.weight_types, BP_TYPE_I8));
  EXPECT_TRUE(plugin::has_type(caps.kv_types, BP_TYPE_BF16));
  EXPECT_TRUE(plugin::has_type(caps.kv_types, BP_TYPE_Q8_0));
  EXPECT_GT(caps.memory_free, 0u);
  EXPECT_LE(caps.memory_free, caps.memory_total);
  bp_caps older{};
  older.size = offsetof(bp_caps, alignment);
  ASSERT_EQ(Library::get().device.caps(rig.device(), rig.context(), &older), BP_OK);
  EXPECT_EQ(older.activation_type, rig.real());
  EXPECT_EQ(older.alignment, 0u) << "beyond the size that the core knows";
}

TEST_P(DeviceTest, Buffers) {
  Rig rig(GetParam());
  auto& table = Library::get().buffer;
  const auto context = rig.context();
  bp_buffer buffer = nullptr;
  EXPECT_EQ(table.alloc(rig.device(), context, 1ull << 60, BP_MEMORY_DEVICE, &buffer), BP_OUT_OF_MEMORY);
  EXPECT_EQ(table.alloc(rig.device(), context, ~0ull, BP_MEMORY_PINNED, &buffer), BP_OUT_OF_MEMORY);
  EXPECT_EQ(table.alloc(rig.device(), context, 0, BP_MEMORY_DEVICE, &buffer), BP_INVALID);
  EXPECT_EQ(table.alloc(rig.device(), context, 8, BP_MEMORY_IMPORTED, &buffer), BP_UNSUPPORTED);
  EXPECT_EQ(table.alloc(rig.device(), context, 8, 77, &buffer), BP_UNSUPPORTED);

  const bp_buffer a = rig.alloc(100), b = rig.alloc(100);
  std::string text = "attention", back(9, ' ');
  EXPECT_EQ(table.upload(rig.device(), nullptr, context, a, 91, text.data(), 9), BP_OK);
  EXPECT_EQ(table.upload(rig.device(), nullptr, context, a, 92, text.data(), 9), BP_INVALID);
  EXPECT_EQ(table.copy(rig.device(), nullptr, context, b, 3, a, 91, 9), BP_OK);
  EXPECT_EQ(table.copy(rig.device(), nullptr, context, b, ~0ull, a, 91, 9), BP_INVALID);
  EXPECT_EQ(table.download(rig.device(), nullptr, context, b, 3, back.data(), 9), BP_OK);
  EXPECT_EQ(back, text);
  EXPECT_EQ(table.download(rig.device(), nullptr, context, b, 96, back.data(), 9), BP_INVALID);

  alignas(64) static const float read_only[4] = {1, 2, 3, 4};
  bp_buffer imported = nullptr;
  ASSERT_EQ(table.import_host(rig.device(), context, const_cast<float*>(read_only), sizeof(read_only), 0, &imported),
            BP_OK);
  bp_unary_args args{};
  args.x = rig.bytes(BP_TYPE_F32, {4});
  args.out = args.x;
  args.x.buffer = imported;
  EXPECT_EQ(rig.run(BP_OP_COPY, args), BP_OK) << rig.reason;
  EXPECT_EQ(rig.read(args.out), (Values{1, 2, 3, 4}));
  std::swap(args.x, args.out);
  EXPECT_EQ(rig.run(BP_OP_COPY, args), BP_INVALID) << "the file is read-only";
  EXPECT_EQ(table.upload(rig.device(), nullptr, context, imported, 0, text.data(), 4), BP_INVALID);
  table.free(rig.device(), imported);
}

TEST_P(DeviceTest, AnswersAskForCasts) {
  Rig rig(GetParam());
  bp_scalar_args args{};
  args.x = args.out = rig.bytes(BP_TYPE_F16, {4});
  bp_support answer{};
  ASSERT_EQ(rig.ask(BP_OP_SCALE, args, &answer), BP_OK) << rig.reason;
  EXPECT_EQ(answer.activation_type, rig.real());
  EXPECT_EQ(answer.accumulator_type, rig.real());
  EXPECT_EQ(rig.run_with(BP_OP_SCALE, args, 0), BP_UNSUPPORTED);
  args.x = args.out = rig.reals({4});
  ASSERT_EQ(rig.ask(BP_OP_SCALE, args, &answer), BP_OK);
  EXPECT_EQ(answer.activation_type, bp_type{BP_TYPE_NONE});
  EXPECT_EQ(answer.flags, BP_SUPPORT_DETERMINISTIC | BP_SUPPORT_BATCH_INVARIANT);
}

}  // namespace
}  // namespace backplane::cpu_test
