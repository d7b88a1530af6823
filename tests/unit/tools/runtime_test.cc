#include "tools/runtime.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tools/options.h"

namespace backplane::tools {
namespace {

plugins::DeviceEntry entry(const std::string& name, bool available = true) {
  plugins::DeviceEntry entry;
  entry.name = name;
  entry.plugin = name.substr(0, name.find(':'));
  entry.available = available;
  return entry;
}

std::string preferred(const std::vector<plugins::DeviceEntry>& devices) {
  const plugins::DeviceEntry* best = preferred_device(devices);
  return best ? best->name : "none";
}

TEST(PreferredDevice, TakesTheBestKindThatIsThere) {
  EXPECT_EQ(preferred({}), "none");
  EXPECT_EQ(preferred({entry("template:0"), entry("cpu:f64"), entry("cpu:f32")}), "cpu:f32");
  EXPECT_EQ(preferred({entry("cpu:f32"), entry("onednn:0"), entry("cuda", false)}), "onednn:0");
  EXPECT_EQ(preferred({entry("cpu:f32"), entry("vulkan:0"), entry("cuda:0", false), entry("cuda:1")}), "cuda:1");
  EXPECT_EQ(preferred({entry("cpu:f32", false), entry("cpu:f64")}), "cpu:f64");
}

TEST(PreferredDevice, LeavesOthersToBeNamed) { EXPECT_EQ(preferred({entry("template:0"), entry("mine:0")}), "none"); }

TEST(ReferenceName, FollowsTheActivationType) {
  EXPECT_EQ(reference_name(DType::kF64), "cpu:f64");
  EXPECT_EQ(reference_name(DType::kBF16), "cpu:f32");
}

TEST(DeviceOptions, ReadTypesAndPolicies) {
  DeviceOptions options;
  EXPECT_EQ(options.kv(), DType::kNone);
  EXPECT_EQ(options.policy(), device::FallbackPolicy::kWarn);
  options.kv_type = "bf16";
  options.fallback = "deny";
  EXPECT_EQ(options.kv(), DType::kBF16);
  EXPECT_EQ(options.policy(), device::FallbackPolicy::kDeny);
  options.kv_type = "f8_e4m3";
  EXPECT_EQ(options.kv(), DType::kF8E4M3);
  for (const char* bad : {"q4_0", "f8_e5m2", "i32", "x", "f16 "}) {
    options.kv_type = bad;
    EXPECT_ERROR(options.kv(), ErrorCode::kUsage, "--kv-type");
  }
}

}  // namespace
}  // namespace backplane::tools
