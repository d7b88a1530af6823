// A fixed set of worker threads for parallel loops.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace backplane {

// parallel_for may be called from any thread; loops from different threads run one after another. The calling thread
// works too, as worker 0.
class ThreadPool {
 public:
  // `threads` includes the caller; 0 takes the number of processors this process may use.
  explicit ThreadPool(unsigned threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  unsigned threads() const { return static_cast<unsigned>(workers_.size()) + 1; }

  // body(begin, end, worker) over disjoint ranges that cover [0, n); returns when all have returned. The split is
  // static (range w goes to worker w, at least `grain` items each), so the same call splits the same way every time. A
  // loop started from inside a body runs on the calling worker alone. An exception of a body is rethrown here, the
  // first one if several.
  using Body = std::function<void(std::uint64_t begin, std::uint64_t end, unsigned worker)>;
  void parallel_for(std::uint64_t n, std::uint64_t grain, const Body& body);

 private:
  struct Loop;
  void work(unsigned worker);

  std::vector<std::thread> workers_;
  std::mutex callers_;  // held for a whole loop
  std::mutex mutex_;    // guards what follows
  std::condition_variable start_, done_;
  Loop* loop_ = nullptr;
  std::uint64_t generation_ = 0;
  unsigned running_ = 0;
  bool stopping_ = false;
};

}  // namespace backplane
