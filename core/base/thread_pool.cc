#include "core/base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <exception>

namespace backplane {
namespace {

thread_local bool inside_loop = false;

unsigned usable_processors() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

struct ThreadPool::Loop {
  std::uint64_t n;
  unsigned parts;
  const Body* body;
  std::mutex mutex;
  std::exception_ptr error;

  void run_part(unsigned worker) noexcept {
    if (worker >= parts) return;
    const std::uint64_t share = n / parts, extra = n % parts;
    const std::uint64_t begin = worker * share + std::min<std::uint64_t>(worker, extra);
    const std::uint64_t end = begin + share + (worker < extra ? 1 : 0);
    inside_loop = true;
    try {
      (*body)(begin, end, worker);
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
    inside_loop = false;
  }
};

ThreadPool::ThreadPool(unsigned threads) {
  if (threads == 0) threads = usable_processors();
  for (unsigned w = 1; w < threads; ++w) workers_.emplace_back([this, w] { work(w); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(std::uint64_t n, std::uint64_t grain, const Body& body) {
  if (n == 0) return;
  const std::uint64_t most = n / std::max<std::uint64_t>(1, grain);
  const auto parts = static_cast<unsigned>(std::clamp<std::uint64_t>(most, 1, threads()));
  if (parts == 1 || inside_loop) {
    body(0, n, 0);
    return;
  }
  std::lock_guard one_loop(callers_);
  Loop loop{n, parts, &body, {}, {}};
  {
    std::lock_guard lock(mutex_);
    loop_ = &loop;
    running_ = static_cast<unsigned>(workers_.size());
    ++generation_;
  }
  start_.notify_all();
  loop.run_part(0);
  {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return running_ == 0; });
    loop_ = nullptr;
  }
  if (loop.error) std::rethrow_exception(loop.error);
}

void ThreadPool::work(unsigned worker) {
  std::uint64_t seen = 0;
  for (;;) {
    Loop* loop = nullptr;
    {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return stopping_ || generation_ != seen; });
      if (stopping_) return;
      seen = generation_;
      loop = loop_;
    }
    loop->run_part(worker);
    {
      std::lock_guard lock(mutex_);
      if (--running_ == 0) done_.notify_all();
    }
  }
}

}  // namespace backplane
