// The real plugin loads on any machine; without a GPU it says what is missing.
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "plugins/host/registry.h"

namespace backplane::plugins {
namespace {

TEST(Cuda, LoadsAndListsItsGpusOrTheDriversReason) {
  const Registry registry(SearchOptions{.plugins = {}, .environment = {}, .folders = {BACKPLANE_PLUGIN_OUTPUT_DIR}});
  EXPECT_EQ(registry.load("cuda")->name(), "cuda");
  int entries = 0;
  for (const DeviceEntry& entry : registry.list_devices()) {
    if (entry.plugin != "cuda") continue;
    ++entries;
    if (entry.available) {
      EXPECT_EQ(entry.name, "cuda:" + std::to_string(entry.index));
      EXPECT_GT(entry.memory_total, 0u);
      EXPECT_NE(entry.description.find("compute capability"), std::string::npos);
    } else {
      EXPECT_EQ(entry.name, "cuda");
      EXPECT_TRUE(entry.reason.starts_with("no CUDA device: ")) << entry.reason;
      EXPECT_GT(entry.reason.size(), 30u) << "the driver's own words follow";
      EXPECT_THROW(registry.find_device("cuda:0"), Error);
    }
  }
  EXPECT_GE(entries, 1);
}

}  // namespace
}  // namespace backplane::plugins
