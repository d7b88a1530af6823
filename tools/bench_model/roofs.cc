#include "tools/bench_model/roofs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>

#include "tools/bench_model/roof_kernels.h"
#include "tools/lab/figures.h"

namespace backplane::bench {
namespace {

constexpr int kReads = 8, kRounds = 30;
constexpr double kRoundSeconds = 0.004;  // short, so that some rounds have the processor to themselves
constexpr std::uint64_t kLine = 8;       // words

template <class Work>
double seconds_of(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::uint64_t last_level_cache() {
#if defined(_SC_LEVEL3_CACHE_SIZE)
  for (const int name : {_SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    if (const long bytes = ::sysconf(name); bytes > 0) return static_cast<std::uint64_t>(bytes);
  }
#endif
  return 0;
}

Roof probe_read(ThreadPool& pool) {
  constexpr std::uint64_t kLeast = std::uint64_t{256} << 20, kMost = std::uint64_t{1} << 30;
  const std::uint64_t bytes = std::clamp(2 * last_level_cache(), kLeast, kMost) / 64 * 64, lines = bytes / 64;
  const auto words = std::make_unique_for_overwrite<std::uint64_t[]>(lines * kLine);
  // By the threads that read it: where memory has places, each part is near its thread.
  pool.parallel_for(lines, 1, [&](std::uint64_t begin, std::uint64_t end, unsigned) {
    std::fill(&words[begin * kLine], &words[0] + end * kLine, begin);
  });
  std::atomic<std::uint64_t> sink{0};
  double fastest = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kReads; ++round) {
    const double seconds = seconds_of([&] {
      pool.parallel_for(lines, 1, [&](std::uint64_t begin, std::uint64_t end, unsigned) {
        std::uint64_t sums[kLine] = {};
        for (std::uint64_t line = begin; line < end; ++line) {
          for (std::uint64_t i = 0; i < kLine; ++i) sums[i] += words[line * kLine + i];
        }
        for (const std::uint64_t sum : sums) sink += sum;
      });
    });
    fastest = std::min(fastest, seconds);
  }
  return {static_cast<double>(bytes) / fastest,
          fmt::format("{} read once, threads: {}, best of {}", lab::bytes_text(static_cast<double>(bytes)),
                      pool.threads(), kReads)};
}

Roof probe_arithmetic(ThreadPool& pool, const ArithmeticKernel& kernel) {
  std::atomic<double> sink{0};
  // One round of the probe for each thread; parallel_for may split no further.
  const auto run = [&](std::uint64_t rounds) {
    return seconds_of([&] {
      pool.parallel_for(pool.threads(), 1, [&](std::uint64_t begin, std::uint64_t end, unsigned) {
        for (; begin < end; ++begin) sink.store(kernel.run(rounds), std::memory_order_relaxed);
      });
    });
  };
  std::uint64_t rounds = 1 << 14;
  while (run(rounds) < kRoundSeconds && rounds < (std::uint64_t{1} << 40)) rounds *= 2;
  double fastest = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) fastest = std::min(fastest, run(rounds));
  return {static_cast<double>(rounds) * kernel.operations * pool.threads() / fastest,
          fmt::format("{} on registers, threads: {}, best of {}", kernel.instructions, pool.threads(), kRounds)};
}

}  // namespace

Roofs probe_roofs(ThreadPool& pool) {
  Roofs roofs{.read = probe_read(pool), .f32 = probe_arithmetic(pool, f32_kernel()), .int8 = std::nullopt};
  if (const auto kernel = int8_kernel()) roofs.int8 = probe_arithmetic(pool, *kernel);
  return roofs;
}

}  // namespace backplane::bench
