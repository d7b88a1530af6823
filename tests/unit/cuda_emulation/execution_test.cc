// Threads, barriers, functions of a warp, shared memory.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <numeric>
#include <string>

#include "tests/unit/cuda_emulation/emulation.h"

namespace {

using cuda_emulation::Order;

class Execution : public EmulationTest {};

#if defined(__SANITIZE_THREAD__)
#define MISSING_BARRIER DISABLED_ShufflingFindsAMissingBarrier  // would end the program: see the test below

// What a disabled test says, which has to fail.
std::string fail_apart(const std::string& test) {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return "no path";
  const std::string command = "'" + std::string(path, static_cast<std::size_t>(length)) +
                              "' --gtest_also_run_disabled_tests --gtest_filter='*DISABLED_" + test + "' 2>&1";
  FILE* program = popen(command.c_str(), "r");
  if (program == nullptr) return "no program";
  std::string said;
  for (int c; (c = std::fgetc(program)) != EOF;) said += static_cast<char>(c);
  EXPECT_NE(pclose(program), 0);
  return said;
}

TEST_F(Execution, TheRaceCheckerFindsAMissingBarrier) {
  const std::string said = fail_apart("ShufflingFindsAMissingBarrier");
  EXPECT_NE(said.find("data race"), std::string::npos) << said;
  EXPECT_NE(said.find("spread_first<false>"), std::string::npos) << said;
  EXPECT_EQ(said.find("spread_first<true>"), std::string::npos) << said;
}
#else
#define MISSING_BARRIER ShufflingFindsAMissingBarrier
#endif

TEST_F(Execution, VectorsAreAdded) {
  constexpr int kCount = 1000;
  std::vector<float> a(kCount), b(kCount), expected(kCount);
  for (int i = 0; i < kCount; ++i) {
    a[i] = static_cast<float>(i);
    b[i] = static_cast<float>(1000 - 3 * i);
    expected[i] = a[i] + b[i];
  }
  const DeviceArray<float> on_a(a), on_b(b), sum(kCount);
  ASSERT_EQ(launch(8, 128, add_vectors, on_a.get(), on_b.get(), sum.get(), kCount), cudaSuccess);
  EXPECT_EQ(sum.values(), expected);
}

TEST_F(Execution, BlocksAreSummedInEveryOrder) {
  constexpr int kBlocks = 5, kThreads = 128;
  std::vector<float> in(kBlocks * kThreads);
  std::iota(in.begin(), in.end(), 1.0f);
  for (const Order order : {Order::kAscending, Order::kDescending, Order::kShuffled}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      use_order(order, seed);
      const DeviceArray<float> on(in), out(kBlocks);
      ASSERT_EQ(launch(kBlocks, kThreads, sum_blocks, on.get(), out.get()), cudaSuccess);
      const std::vector<float> sums = out.values();
      for (int block = 0; block < kBlocks; ++block) {
        const int first = block * kThreads + 1, last = first + kThreads - 1;
        EXPECT_EQ(sums[block], static_cast<float>((first + last) * kThreads / 2)) << block;
      }
    }
  }
}

void add_up_blocks(void (*kernel)(const float*, float*, unsigned*, float*)) {
  constexpr int kBlocks = 9;
  std::vector<float> in(kBlocks);
  std::iota(in.begin(), in.end(), 1.0f);
  const DeviceArray<float> on(in), parts(kBlocks), total(1);
  const DeviceArray<unsigned> counter(std::vector<unsigned>{0});
  ASSERT_EQ(launch(kBlocks, 1, kernel, on.get(), parts.get(), counter.get(), total.get()), cudaSuccess);
  EXPECT_EQ(total.values(), std::vector<float>{45.0f});
  EXPECT_EQ(counter.values(), std::vector<unsigned>{0});
}

TEST_F(Execution, TheLastBlockAddsUp) {
  for (const int threads : {0, 1}) {
    use({.threads = threads});
    add_up_blocks(sum_over_blocks<true, true>);
  }
}

#if defined(__SANITIZE_THREAD__)
// One host thread runs all blocks, and each has its thread 0: they aren't one thread to the race checker.
TEST_F(Execution, DISABLED_BlocksAddUpWithoutTheFirstFence) {
  use({.threads = 1});
  add_up_blocks(sum_over_blocks<false, true>);
}
TEST_F(Execution, DISABLED_BlocksAddUpWithoutTheLastFence) {
  use({.threads = 1});
  add_up_blocks(sum_over_blocks<true, false>);
}

TEST_F(Execution, TheRaceCheckerFindsAMissingFence) {
  for (const char* test : {"BlocksAddUpWithoutTheFirstFence", "BlocksAddUpWithoutTheLastFence"}) {
    const std::string said = fail_apart(test);
    EXPECT_NE(said.find("data race"), std::string::npos) << said;
    EXPECT_NE(said.find("sum_over_blocks<"), std::string::npos) << said;
  }
}
#endif

TEST_F(Execution, DynamicSharedMemoryInTwoDimensions) {
  const dim3 grid(2, 3), block(8, 5);
  constexpr int kSize = 40, kCount = 6 * kSize;
  std::vector<int> in(kCount), expected(kCount);
  for (int i = 0; i < kCount; ++i) {
    in[i] = i;
    expected[i] = i / kSize * kSize + kSize - 1 - i % kSize;
  }
  const DeviceArray<int> on(in), out(kCount);
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = kSize * sizeof(int);
  ASSERT_EQ(cudaLaunchKernelEx(&config, reverse_blocks, on.get(), out.get()), cudaSuccess);
  EXPECT_EQ(out.values(), expected);
}

TEST_F(Execution, ParametersByAddressAreReadAtTheLaunch) {
  const DeviceArray<float> out(64);
  float* pointer = out.get();
  float value = 3.0f;
  void* arguments[] = {&pointer, &value};
  ASSERT_EQ(cudaLaunchKernel(fill_value, dim3(2), dim3(32), arguments), cudaSuccess);
  value = 4.0f;
  EXPECT_EQ(out.values(), std::vector<float>(64, 3.0f));
}

// Thread 0 happens to be first in the ascending order, which hides that nobody waits for it.
TEST_F(Execution, MISSING_BARRIER) {
  const auto wrong = [&](void (*kernel)(const float*, float*), Order order) {
    use_order(order);
    const DeviceArray<float> in(std::vector<float>{7.0f}), out(64);
    EXPECT_EQ(launch(1, 64, kernel, in.get(), out.get()), cudaSuccess);
    int count = 0;
    for (const float value : out.values()) {
      EXPECT_TRUE(value == 7.0f || std::isnan(value));
      count += value != 7.0f;
    }
    return count;
  };
  EXPECT_EQ(wrong(spread_first<false>, Order::kAscending), 0);
  EXPECT_GT(wrong(spread_first<false>, Order::kShuffled), 0);
  EXPECT_GT(wrong(spread_first<false>, Order::kDescending), 0);
  for (const Order order : {Order::kAscending, Order::kDescending, Order::kShuffled}) {
    EXPECT_EQ(wrong(spread_first<true>, order), 0);
  }
}

TEST_F(Execution, WarpsVoteAndShuffle) {
  const DeviceArray<unsigned> ballots(32);
  const DeviceArray<int> any(32), all(32), sums(32);
  const DeviceArray<float> up(32), down(32);
  ASSERT_EQ(launch(1, 32, ask_warp, ballots.get(), any.get(), all.get(), up.get(), down.get(), sums.get()),
            cudaSuccess);
  EXPECT_EQ(ballots.values(), std::vector<unsigned>(32, 0x49249249u));  // every third bit
  EXPECT_EQ(any.values(), std::vector<int>(32, 1));
  EXPECT_EQ(all.values(), std::vector<int>(32, 0));
  const std::vector<float> from_below = up.values(), from_above = down.values();
  const std::vector<int> of_half = sums.values();
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(from_below[lane], static_cast<float>(lane % 16 == 0 ? lane : lane - 1)) << lane;
    EXPECT_EQ(from_above[lane], static_cast<float>(lane % 8 >= 6 ? lane : lane + 2)) << lane;
    EXPECT_EQ(of_half[lane], lane < 16 ? 120 : 376) << lane;
  }
}

TEST_F(Execution, AtomicsLoseNothing) {
  const DeviceArray<int> count(std::vector<int>{0});
  const DeviceArray<unsigned> largest(std::vector<unsigned>{0});
  const DeviceArray<float> total(std::vector<float>{0});
  const DeviceArray<unsigned long long> wide(std::vector<unsigned long long>{5});
  ASSERT_EQ(launch(64, 96, count_atomically, count.get(), largest.get(), total.get(), wide.get()), cudaSuccess);
  EXPECT_EQ(count.values()[0], 6144);
  EXPECT_EQ(largest.values()[0], 6143u);
  EXPECT_EQ(total.values()[0], 3072.0f);
  EXPECT_EQ(wide.values()[0], (6144ULL << 32) + 5);
}

TEST_F(Execution, AsynchronousCopiesLandAtTheWait) {
  std::vector<float4> in(64);
  for (int i = 0; i < 64; ++i) in[i] = make_float4(static_cast<float>(i), 1, 2, 3);
  const DeviceArray<float4> on(in), waited(64), hasty(64);
  ASSERT_EQ(launch(1, 64, copy_tiles<true>, on.get(), waited.get()), cudaSuccess);
  ASSERT_EQ(launch(1, 64, copy_tiles<false>, on.get(), hasty.get()), cudaSuccess);
  const std::vector<float4> good = waited.values(), bad = hasty.values();
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(good[i].x, static_cast<float>(i ^ 1));
    EXPECT_TRUE(std::isnan(bad[i].x));
  }
}

// What each of these does would hang a GPU or fault on it; here it ends with a report and a lost device.
struct Misdeed {
  const char* name;
  cudaError_t (*launch)();
  std::vector<const char*> said;
};

class Misdeeds : public EmulationTest, public testing::WithParamInterface<Misdeed> {};

TEST_P(Misdeeds, AreReportedWithKernelAndBlock) {
  for (int repeat = 0; repeat < 2; ++repeat) {  // the second time on stacks that the first abandoned
    use({});
    ASSERT_EQ(GetParam().launch(), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    const std::string report = cuda_emulation::last_report();
    for (const char* part : GetParam().said) EXPECT_NE(report.find(part), std::string::npos) << report;
  }
  use({});
  const DeviceArray<float> out(64);
  ASSERT_EQ(launch(2, 32, fill_value, out.get(), 1.0f), cudaSuccess);
  EXPECT_EQ(out.values(), std::vector<float>(64, 1.0f));
}

INSTANTIATE_TEST_SUITE_P(
    Execution, Misdeeds,
    testing::Values(
        Misdeed{"Barrier",
                [] { return launch(1, 64, barrier_for_half); },
                {"barrier_for_half", "block (0, 0, 0)", "32 threads wait at __syncthreads"}},
        Misdeed{"Deadlock",
                [] { return launch(1, 32, shuffle_for_half); },
                {"shuffle_for_half", "deadlock", "16 wait at __syncthreads", "16 at a function of their warp"}},
        Misdeed{"Mixture", [] { return launch(1, 32, mixed_barriers); }, {"mixed_barriers", "different functions"}},
        Misdeed{
            "Trap", [] { return launch(2, 32, trap_in_thread, 3); }, {"trap_in_thread", "block (1, 0, 0)", "trap"}}),
    [](const auto& one) { return one.param.name; });

}  // namespace
