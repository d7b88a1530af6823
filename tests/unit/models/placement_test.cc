#include <gtest/gtest.h>

#include "plugins/sdk/backplane_call.hpp"
#include "tests/unit/device/runs.h"

namespace backplane {
namespace {

// A device of a name of its own whose plugin reports so much free memory, its own or, with an id, that of all devices
// with this id.
std::shared_ptr<device::Device> device_with(std::uint64_t free, std::uint8_t id = 0, const std::string& name = {}) {
  static std::map<bp_device, std::uint64_t> memory;
  static std::uint8_t id_of_next;  // asked for while it opens
  static std::string name_of_next;
  static int opened = 0;
  id_of_next = id;
  name_of_next = name.empty() ? std::to_string(opened++) : name;
  const plugins::DeviceRef ref = test::registry().find_device("cpu:f32");
  test::TableSet& changed = test::changed_tables(ref.plugin->tables());
  static const auto original = changed.device.caps;
  changed.device.caps = [](bp_device device, bp_context context, bp_caps* caps) {
    const bp_status status = original(device, context, caps);
    caps->memory_free = memory[device];
    caps->flags &= ~std::uint64_t{BP_CAP_UNIFIED};
    caps->memory_id[15] = id_of_next;
    plugin::copy_text(caps->name, name_of_next);
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

TEST_F(PlacementTest, CountsMemoryOnceThatDevicesShare) {
  const std::uint64_t all = file_.estimate(options_).total(), some = all * 8 / 10;
  const auto a = device_with(some, 7), b = device_with(some, 7), other = device_with(some, 8), own = device_with(some);
  EXPECT_TRUE(a->shares_memory_with(*b));
  EXPECT_FALSE(a->shares_memory_with(*other));
  EXPECT_FALSE(own->shares_memory_with(*device_with(some)));
  const auto once = device_with(some, 0, "one"), again = device_with(some, 0, "one");
  EXPECT_EQ(models::free_bytes({{once, std::nullopt}, {again, std::nullopt}}), some);
  EXPECT_EQ(models::free_bytes({{a, std::nullopt}, {other, std::nullopt}, {b, std::nullopt}}), 2 * some);
  EXPECT_ERROR(homes({{a, std::nullopt}, {b, std::nullopt}}), ErrorCode::kCapacity, "are free");
  const Homes split = homes({{a, std::nullopt}, {b, std::nullopt}, {other, std::nullopt}});
  EXPECT_EQ(split.back(), 2u);
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
