#include <gtest/gtest.h>

#include "tests/unit/device/runs.h"

namespace backplane {
namespace {

// A device whose plugin reports so much free memory, and memory of its own.
std::shared_ptr<device::Device> device_with(std::uint64_t free) {
  static std::map<bp_device, std::uint64_t> memory;
  const plugins::DeviceRef ref = test::registry().find_device("cpu:f32");
  test::TableSet& changed = test::changed_tables(ref.plugin->tables());
  static const auto original = changed.device.caps;
  changed.device.caps = [](bp_device device, bp_context context, bp_caps* caps) {
    const bp_status status = original(device, context, caps);
    caps->memory_free = memory[device];
    caps->flags &= ~std::uint64_t{BP_CAP_UNIFIED};
    return status;
  };
  auto device = device::Device::open({&changed.tables, "small"}, ref.index);
  memory[device->handle()] = free;  // a later device may get the same handle
  return device;
}

class PlacementTest : public testing::Test {
 protected:
  PlacementTest() : file_(test::write_tiny_llama(folder_, {4})) {
    options_.context = 64;
    options_.max_sequences = 1;
    options_.max_step_tokens = 8;
    options_ = models::resolve(options_, file_.spec(), {test::open_device("cpu:f32")});
  }
  std::vector<device::Slot> homes(const std::vector<models::DeviceChoice>& choices) {
    return models::place(file_, choices, options_).homes;
  }

  test::TempFolder folder_;
  models::ModelFile file_;
  models::LoadOptions options_;
};

using Homes = std::vector<device::Slot>;

TEST_F(PlacementTest, FollowsTheNumbersAskedFor) {
  const auto a = test::open_device("cpu:f32"), b = test::open_device("template:0");
  EXPECT_EQ(homes({{a, std::nullopt}}), (Homes{0, 0, 0, 0}));
  EXPECT_EQ(homes({{a, 1}, {b, std::nullopt}}), (Homes{0, 1, 1, 1}));
  EXPECT_EQ(homes({{a, 0}, {b, 3}, {a, 1}}), (Homes{1, 1, 1, 2}));
  EXPECT_ERROR(homes({{a, 1}, {b, 1}}), ErrorCode::kUsage, "2 layers were placed and the model has 4");
  EXPECT_ERROR(homes({{a, 5}, {b, std::nullopt}}), ErrorCode::kUsage, "5 layers");
}

TEST_F(PlacementTest, GoesOnWhereItNoLongerFits) {
  const std::uint64_t all = file_.estimate(options_).total();
  const auto big = device_with(4 * all);
  EXPECT_EQ(homes({{device_with(all), std::nullopt}, {big, std::nullopt}}), (Homes{0, 0, 0, 0}));
  const Homes split = homes({{device_with(all * 8 / 10), std::nullopt}, {big, std::nullopt}});
  EXPECT_EQ(split.front(), 0u);
  EXPECT_EQ(split.back(), 1u);
  EXPECT_TRUE(std::is_sorted(split.begin(), split.end()));
  EXPECT_ERROR(homes({{device_with(all / 2), std::nullopt}}), ErrorCode::kCapacity, "are free");
}

}  // namespace
}  // namespace backplane
