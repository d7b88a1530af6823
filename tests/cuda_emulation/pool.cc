// The host threads that run the blocks of launches, one launch at a time.
#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "tests/cuda_emulation/block.h"
#include "tests/cuda_emulation/runtime.h"

namespace cuda_emulation {

namespace {

BlockRunner& runner_of_thread() {
  thread_local BlockRunner runner;
  return runner;
}

/// One launch that several host threads work on.
struct Job {
  const Launch& launch;
  const Config& config;
  unsigned blocks;
  std::atomic<unsigned> next{0};
  std::mutex mutex;
  std::string problem;

  void work() {
    for (unsigned block; (block = next.fetch_add(1)) < blocks;) {
      std::string found = runner_of_thread().run(launch, block, config);
      if (found.empty()) continue;
      next = blocks;  // the launch has failed, the rest is not run
      const std::lock_guard lock(mutex);
      const dim3 grid = launch.grid;
      if (problem.empty()) {
        problem = kernel_name(launch.kernel) + ": block (" + std::to_string(block % grid.x) + ", " +
                  std::to_string(block / grid.x % grid.y) + ", " + std::to_string(block / (grid.x * grid.y)) +
                  "): " + found;
      }
    }
  }
};

class Pool {
 public:
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  /// False if the pool is busy with another thread's launch.
  bool run(Job& job, std::size_t helpers) {
    const std::unique_lock owner(owner_, std::try_to_lock);
    if (!owner) return false;
    {
      const std::lock_guard lock(mutex_);
      while (threads_.size() < helpers) threads_.emplace_back([this] { serve(); });
      job_ = &job;
      ++generation_;
      wanted_ = helpers;
    }
    wake_.notify_all();
    job.work();
    std::unique_lock lock(mutex_);
    wanted_ = 0;  // who hasn't come yet needn't
    done_.wait(lock, [&] { return working_ == 0; });
    job_ = nullptr;
    return true;
  }

 private:
  void serve() {
    std::uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return ending_ || (generation_ != seen && wanted_ > 0); });
      if (ending_) return;
      seen = generation_;
      --wanted_;
      ++working_;
      Job* job = job_;
      lock.unlock();
      job->work();
      lock.lock();
      if (--working_ == 0) done_.notify_all();
    }
  }

  std::mutex owner_, mutex_;
  std::condition_variable wake_, done_;
  std::vector<std::thread> threads_;
  Job* job_ = nullptr;
  std::uint64_t generation_ = 0;
  std::size_t wanted_ = 0, working_ = 0;
  bool ending_ = false;
};

}  // namespace

std::string run_blocks(const Launch& launch, const Config& config) {
  static Pool pool;
  Job job{.launch = launch,
          .config = config,
          .blocks = launch.grid.x * launch.grid.y * launch.grid.z,
          .mutex = {},
          .problem = {}};
  release(&launch);
  static const unsigned processors = std::thread::hardware_concurrency();  // asks the system, which takes its time
  const unsigned threads = config.threads > 0 ? static_cast<unsigned>(config.threads) : processors;
  const std::size_t helpers = std::min(std::max(threads, 1u), job.blocks) - 1;
  if (helpers == 0 || !pool.run(job, helpers)) job.work();
  return job.problem;
}

}  // namespace cuda_emulation
