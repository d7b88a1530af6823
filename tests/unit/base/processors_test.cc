#include "core/base/processors.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace backplane {
namespace {

TEST(ProcessorsTest, ReadsQuotas) {
  EXPECT_EQ(processors_of_quota("200000 100000\n"), 2u);
  EXPECT_EQ(processors_of_quota("150000 100000"), 2u);  // one and a half
  EXPECT_EQ(processors_of_quota("1000 100000"), 1u);
  EXPECT_EQ(processors_of_quota("18446744073709551615 1"), UINT32_MAX);
  for (const char* none : {"", "max 100000", "100000", "100000 ", "100000 0", "-1 100000", "1e5 100000", " 1 1"}) {
    EXPECT_EQ(processors_of_quota(none), std::nullopt) << none;
  }
}

TEST(ProcessorsTest, TakesTheLeastOfAGroupAndThoseAroundIt) {
  const std::filesystem::path root = std::filesystem::path(::testing::TempDir()) / "control groups";
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root / "a" / "b");
  const auto set = [&](const char* group, const char* text) { std::ofstream(root / group / "cpu.max") << text; };
  EXPECT_EQ(processors_of_groups("0::/a/b\n", root), std::nullopt);
  set("a", "300000 100000\n");
  set("a/b", "max 100000\n");
  EXPECT_EQ(processors_of_groups("1:cpu:/x\n0::/a/b\n", root), 3u);
  EXPECT_EQ(processors_of_groups("0::/\n", root), std::nullopt);
  set("a/b", "100000 100000\n");
  EXPECT_EQ(processors_of_groups("0::/a/b", root), 1u);
  EXPECT_EQ(processors_of_groups("0::/not/here", root), std::nullopt);
  set(".", "200000 100000\n");
  EXPECT_EQ(processors_of_groups("0::/\n", root), 2u);
  EXPECT_EQ(processors_of_groups("", root), 2u);
  std::filesystem::remove_all(root);
}

TEST(ProcessorsTest, ReadsTheNameOfTheProcessor) {
  EXPECT_EQ(
      processor_name("processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7763\nflags\t: a b\nmodel name\t: B\n"),
      "AMD EPYC 7763");
  EXPECT_EQ(processor_name("processor\t: 0\nCPU part\t: 0xd0c\nModel\t\t: Raspberry Pi 5"), "Raspberry Pi 5");
  EXPECT_EQ(processor_name("model name\t:"), "");
  EXPECT_EQ(processor_name(""), "");
}

TEST(ProcessorsTest, CountsSome) { EXPECT_GE(usable_processors(), 1u); }

}  // namespace
}  // namespace backplane
