#include "tools/process.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>

#include "tests/support/expect_error.h"

namespace backplane::tools {
namespace {

TEST(RunProcess, GivesStatusAndOutput) {
  const auto good = run_process({"sh", "-c", "echo out; echo err >&2; exit 7"}, {}, {});
  EXPECT_EQ(good.status, 7);
  EXPECT_EQ(good.output, "out\nerr\n");
  EXPECT_EQ(run_process({"sh", "-c", "kill -9 $$"}, {}, {}).status, 128 + 9);
}

TEST(RunProcess, ChangesTheEnvironmentOfTheChildOnly) {
  ::setenv("BACKPLANE_TEST_VALUE", "before", 1);
  const auto run = run_process({"sh", "-c", "echo $BACKPLANE_TEST_VALUE$BACKPLANE_TEST_OTHER"},
                               {"BACKPLANE_TEST_VALUE=after", "BACKPLANE_TEST_OTHER=new"}, {});
  EXPECT_EQ(run.output, "afternew\n");
  EXPECT_STREQ(::getenv("BACKPLANE_TEST_VALUE"), "before");
}

TEST(RunProcess, PassesArgumentsWithoutAShell) {
  EXPECT_EQ(run_process({"printf", "%s", "$HOME; `id`"}, {}, {}).output, "$HOME; `id`");
}

TEST(RunProcess, KeepsTheEndOfLongOutput) {
  const auto run = run_process({"sh", "-c", "yes 0123456789 | head -n 100000; echo the end"}, {}, {});
  EXPECT_LE(run.output.size(), std::size_t{128} << 10);
  EXPECT_TRUE(run.output.ends_with("the end\n"));
}

TEST(RunProcess, EndsTheProgramWhenTheTickThrows) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(run_process({"sleep", "60"}, {}, [] { throw std::runtime_error("stop"); }), std::runtime_error);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(RunProcess, SaysWhatCantBeStarted) {
  EXPECT_ERROR(run_process({"no-such-program-here"}, {}, {}), ErrorCode::kBadFile, "no-such-program-here");
}

}  // namespace
}  // namespace backplane::tools
