// A fixed set of worker threads for parallel loops.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace backplane {

// parallel_for may be called from any thread; loops from different threads run one after another. The calling thread
// works too, as worker 0. A decode step is hundreds of loops of some ten microseconds each, so whoever waits spins for
// about 50 microseconds before it sleeps. A part that its worker hasn't begun is taken by whoever is done first: beside
// a busy process, a loop doesn't wait for a worker that has no processor.
class ThreadPool {
 public:
  // `threads` includes the caller; 0 takes the number of processors this process may use.
  explicit ThreadPool(unsigned threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Includes those that a limit leaves out.
  unsigned threads() const { return static_cast<unsigned>(workers_.size()) + 1; }

  // body(begin, end, worker) over disjoint ranges that cover [0, n); returns when all have returned. The split is
  // static: range w, of at least `grain` items, is always the same and comes with worker == w, whichever thread runs
  // it. A loop started from inside a body runs on the calling thread alone. An exception of a body is rethrown here,
  // the first one if several.
  using Body = std::function<void(std::uint64_t begin, std::uint64_t end, unsigned worker)>;
  void parallel_for(std::uint64_t n, std::uint64_t grain, const Body& body);

  // From the next loop on, loops have no more parts than this; 0: as many as there are threads. For trying out how many
  // are best, while what was made for threads() of them stays as it is.
  void limit(unsigned threads);

 private:
  // Who takes part w of a round is decided on seat w: `taken` is the last round whose part was taken.
  struct alignas(64) Seat {
    std::atomic<std::uint32_t> taken{0};
  };
  // One loop. Only who took a part of the round may look: until that part is run, the loop can't end.
  struct Loop {
    std::uint64_t n = 0;
    unsigned parts = 0;
    const Body* body = nullptr;
    std::exception_ptr error;  // under error_mutex_
  };

  void work(unsigned worker);
  bool take(unsigned part, std::uint32_t round);
  void run_part(unsigned part) noexcept;
  void run_taken(unsigned part) noexcept;

  std::mutex callers_;  // held for a whole loop
  std::mutex error_mutex_;
  Loop loop_;
  std::vector<Seat> seats_;
  alignas(64) std::atomic<std::uint32_t> round_{0};       // number of the loop that runs or ran last
  alignas(64) std::atomic<std::uint32_t> unfinished_{0};  // its parts beside the caller's
  std::atomic<bool> stopping_{false};
  std::atomic<unsigned> limit_{~0u};
  std::vector<std::thread> workers_;
};

}  // namespace backplane
