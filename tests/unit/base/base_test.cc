#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/abi_call.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/base/thread_pool.h"

namespace backplane {
namespace {

TEST(ErrorTest, JoinsItsPartsOnOneLine) {
  const Error error(ErrorCode::kBadFile, "not a model", "a\nb.gguf", "use inspect");
  EXPECT_STREQ(error.what(), "not a model: a b.gguf: use inspect");
  EXPECT_EQ(error.exit_status(), 3);
  EXPECT_EQ(error_code_name(error.code()), "bad_file");
}

TEST(DTypeTest, NamesAndBlocks) {
  EXPECT_EQ(dtype_from_name("Q4_K"), DType::kQ4_K);
  EXPECT_EQ(dtype_from_name("none"), std::nullopt);
  EXPECT_EQ(row_bytes(DType::kQ4_1, 64), 40u);
  EXPECT_EQ(row_bytes(DType::kQ4_1, 33), std::nullopt);
  EXPECT_EQ(row_bytes(DType::kF64, UINT64_MAX / 4), std::nullopt);
  EXPECT_EQ(dtype_info(static_cast<DType>(9999)).type, DType::kNone);
}

TEST(ThreadPoolTest, CoversEveryIndexOnce) {
  for (unsigned threads : {1u, 2u, 5u}) {
    ThreadPool pool(threads);
    for (std::uint64_t n : {0u, 1u, 3u, 1000u}) {
      std::vector<std::atomic<int>> hits(n);
      pool.parallel_for(n, 1, [&](std::uint64_t b, std::uint64_t e, unsigned) {
        for (auto i = b; i < e; ++i) ++hits[i];
      });
      for (const auto& hit : hits) EXPECT_EQ(hit, 1);
    }
  }
}

TEST(ThreadPoolTest, KeepsToALimitUntilItIsLifted) {
  ThreadPool pool(4);
  const auto parts = [&] {
    std::atomic<unsigned> count = 0;
    std::atomic<std::uint64_t> items = 0;
    pool.parallel_for(1000, 1, [&](std::uint64_t b, std::uint64_t e, unsigned worker) {
      EXPECT_LT(worker, 4u);
      ++count;
      items += e - b;
    });
    EXPECT_EQ(items, 1000u);
    return count.load();
  };
  pool.limit(2);
  EXPECT_EQ(parts(), 2u);
  EXPECT_EQ(pool.threads(), 4u);
  pool.limit(1);
  EXPECT_EQ(parts(), 1u);
  pool.limit(9);
  EXPECT_EQ(parts(), 4u);
  pool.limit(0);
  EXPECT_EQ(parts(), 4u);
}

TEST(ThreadPoolTest, RethrowsAndStaysUsable) {
  ThreadPool pool(3);
  const auto fail = [](std::uint64_t, std::uint64_t e, unsigned) {
    if (e == 100) throw Error(ErrorCode::kInternal, "last part");
  };
  EXPECT_THROW(pool.parallel_for(100, 1, fail), Error);
  std::atomic<std::uint64_t> sum = 0;
  pool.parallel_for(10, 1, [&](std::uint64_t b, std::uint64_t e, unsigned) { sum += e - b; });
  EXPECT_EQ(sum, 10u);
}

TEST(ThreadPoolTest, NestedLoopsRunInPlace) {
  ThreadPool pool(2);
  std::atomic<int> count = 0;
  pool.parallel_for(2, 1, [&](std::uint64_t, std::uint64_t, unsigned) {
    pool.parallel_for(4, 1, [&](std::uint64_t b, std::uint64_t e, unsigned) { count += static_cast<int>(e - b); });
  });
  EXPECT_EQ(count, 8);
}

// Loops that follow each other at once, and pauses in which the workers fall asleep.
TEST(ThreadPoolTest, ManyLoopsInARow) {
  for (const unsigned threads : {2u, 3u, 8u}) {
    ThreadPool pool(threads);
    std::vector<std::uint64_t> seen(100);
    for (std::uint64_t round = 1; round <= 5000; ++round) {
      const std::uint64_t n = 1 + round % seen.size();
      pool.parallel_for(n, 1 + round % 3, [&](std::uint64_t b, std::uint64_t e, unsigned worker) {
        EXPECT_LT(worker, threads);
        for (auto i = b; i < e; ++i) seen[i] = round;
      });
      for (std::uint64_t i = 0; i < n; ++i) ASSERT_EQ(seen[i], round);
      if (round % 1000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

// A part is the same, and has the same number, whoever runs it.
TEST(ThreadPoolTest, TheSplitIsStatic) {
  ThreadPool pool(4);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges(4);
    pool.parallel_for(10, 1, [&](std::uint64_t b, std::uint64_t e, unsigned worker) { ranges[worker] = {b, e}; });
    const std::vector<std::pair<std::uint64_t, std::uint64_t>> expected{{0, 3}, {3, 6}, {6, 8}, {8, 10}};
    ASSERT_EQ(ranges, expected);
  }
}

TEST(ThreadPoolTest, TakesLoopsFromManyThreads) {
  ThreadPool pool(3);
  std::atomic<std::uint64_t> sum = 0;
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        pool.parallel_for(7, 1, [&](std::uint64_t b, std::uint64_t e, unsigned) { sum += e - b; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4u * 500u * 7u);
}

TEST(MappedFileTest, MapsAndRefuses) {
  const auto folder = std::filesystem::temp_directory_path() / "backplane_base_test";
  std::filesystem::create_directories(folder);
  const auto path = folder / "file with space";
  std::ofstream(path) << "hello";
  const MappedFile file(path);
  EXPECT_EQ(file.bytes().size(), 5u);
  EXPECT_EQ(static_cast<char>(file.bytes()[4]), 'o');
  file.release(file.bytes());
  EXPECT_EQ(static_cast<char>(file.bytes()[0]), 'h');
  EXPECT_THROW(MappedFile{folder}, Error);
  EXPECT_THROW(MappedFile{folder / "absent"}, Error);
  std::ofstream(folder / "empty");
  EXPECT_TRUE(MappedFile{folder / "empty"}.bytes().empty());
  std::filesystem::remove_all(folder);
}

TEST(AbiCallTest, KeepsTheFirstTextAndMapsTheStatus) {
  AbiCall call;
  EXPECT_EQ(AbiCall::fail(call.context(), BP_OUT_OF_MEMORY, "first"), BP_OUT_OF_MEMORY);
  EXPECT_EQ(AbiCall::fail(call.context(), BP_OK, "second"), BP_INTERNAL);
  EXPECT_EQ(call.text(), "first");
  EXPECT_EQ(AbiCall::fail(nullptr, BP_INVALID, nullptr), BP_INVALID);
  try {
    call.check(BP_OUT_OF_MEMORY, "cpu:f32: alloc");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCapacity);
    EXPECT_NE(std::string(error.what()).find("first"), std::string::npos);
  }
}

TEST(AbiCallTest, ALostDeviceHasATypeOfItsOwn) {
  AbiCall call;
  AbiCall::fail(call.context(), BP_DEVICE_LOST, "fell off the bus");
  try {
    call.check(BP_DEVICE_LOST, "gpu:0: upload");
    FAIL();
  } catch (const DeviceLost& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDevice);
    EXPECT_EQ(error.cause(), "device lost (fell off the bus): gpu:0: upload");
    EXPECT_EQ(std::string(error.what()).find(error.cause() + ": "), 0u);
  }
  try {
    call.check(BP_INTERNAL, "gpu:0: upload");
    FAIL();
  } catch (const DeviceLost&) {
    FAIL() << "an internal error is no loss";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDevice);
  }
}

}  // namespace
}  // namespace backplane
