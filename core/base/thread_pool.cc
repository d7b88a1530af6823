#include "core/base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/processors.h"

namespace backplane {
namespace {

thread_local bool inside_loop = false;

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns when `value` isn't `old` any more: spins first, since sleeping and waking cost more than most waits last.
std::uint32_t wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  constexpr auto kSpin = std::chrono::microseconds(50);
  constexpr int kLooks = 32;  // between two looks at the clock
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kLooks; ++i) {
      const std::uint32_t now = value.load(std::memory_order_acquire);
      if (now != old) return now;
      pause_briefly();
    }
  } while (std::chrono::steady_clock::now() < end);
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(unsigned threads) : seats_(threads != 0 ? threads : usable_processors()) {
  for (unsigned w = 1; w < seats_.size(); ++w) workers_.emplace_back([this, w] { work(w); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

// Every part of a round is taken once, before the round ends; so a thread that comes late finds its seat taken.
bool ThreadPool::take(unsigned part, std::uint32_t round) {
  std::uint32_t taken = seats_[part].taken.load(std::memory_order_acquire);
  while (static_cast<std::int32_t>(round - taken) > 0) {
    if (seats_[part].taken.compare_exchange_weak(taken, round, std::memory_order_acq_rel)) return true;
  }
  return false;
}

void ThreadPool::run_part(unsigned part) noexcept {
  const std::uint64_t share = loop_.n / loop_.parts, extra = loop_.n % loop_.parts;
  const std::uint64_t begin = part * share + std::min<std::uint64_t>(part, extra);
  const std::uint64_t end = begin + share + (part < extra ? 1 : 0);
  inside_loop = true;
  try {
    (*loop_.body)(begin, end, part);
  } catch (...) {
    const std::lock_guard lock(error_mutex_);
    if (!loop_.error) loop_.error = std::current_exception();
  }
  inside_loop = false;
}

void ThreadPool::run_taken(unsigned part) noexcept {
  run_part(part);
  if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
}

void ThreadPool::parallel_for(std::uint64_t n, std::uint64_t grain, const Body& body) {
  if (n == 0) return;
  const std::uint64_t most = n / std::max<std::uint64_t>(1, grain);
  const unsigned limit = std::min(threads(), limit_.load(std::memory_order_relaxed));
  const auto parts = static_cast<unsigned>(std::clamp<std::uint64_t>(most, 1, limit));
  if (parts == 1 || inside_loop) {
    body(0, n, 0);
    return;
  }
  const std::lock_guard one_loop(callers_);
  const std::uint32_t round = round_.load(std::memory_order_relaxed) + 1;
  loop_.n = n;
  loop_.parts = parts;
  loop_.body = &body;
  seats_[0].taken.store(round, std::memory_order_relaxed);
  for (unsigned w = parts; w < seats_.size(); ++w) seats_[w].taken.store(round, std::memory_order_relaxed);
  unfinished_.store(parts - 1, std::memory_order_relaxed);
  round_.store(round, std::memory_order_release);
  round_.notify_all();
  run_part(0);
  for (unsigned w = parts - 1; w > 0; --w) {
    if (take(w, round)) run_taken(w);
  }
  for (std::uint32_t left = unfinished_.load(std::memory_order_acquire); left != 0;) {
    left = wait_for_change(unfinished_, left);
  }
  if (loop_.error) std::rethrow_exception(std::exchange(loop_.error, nullptr));
}

void ThreadPool::limit(unsigned threads) { limit_.store(threads != 0 ? threads : ~0u, std::memory_order_relaxed); }

void ThreadPool::work(unsigned worker) {
  std::uint32_t round = 0;
  for (;;) {
    round = wait_for_change(round_, round);
    if (stopping_.load(std::memory_order_relaxed)) return;
    // Its own part first, then what others haven't begun.
    for (std::size_t i = 0; i < seats_.size(); ++i) {
      const auto part = static_cast<unsigned>((worker + i) % seats_.size());
      if (take(part, round)) run_taken(part);
    }
  }
}

}  // namespace backplane
