// Runs the threads of one block, each as a fiber, all on the calling host thread. A thread keeps its turn until it
// waits for others or ends.
#pragma once

#include <driver_types.h>
#include <vector_types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/cuda_emulation/counters.h"
#include "tests/cuda_emulation/include/cuda_emulation/control.h"
#include "tests/cuda_emulation/include/cuda_emulation/device.h"
#include "tests/cuda_emulation/runtime.h"
#include "tests/cuda_emulation/stack.h"

namespace cuda_emulation {

/// One launch, its parameters inside `body`.
struct Launch {
  dim3 grid, block;
  std::size_t dynamic_shared = 0;
  std::function<void()> body;  ///< what one CUDA thread does
  const void* kernel = nullptr;
};

/// A cp.async copy that hasn't been waited for.
struct PendingCopy {
  void* to;
  const void* from;
  std::size_t bytes, zeros;
};

/// One CUDA thread.
struct Thread {
  uint3 index;
  unsigned number = 0;
  std::size_t place = 0;       // of its race context, and of its stack where stacks aren't shared
  Context* context = nullptr;  // null until its first turn
  RaceContext race = nullptr;
  enum class State { kReady, kAtBlockBarrier, kAtWarpBarrier, kEnded } state = State::kReady;
  std::vector<PendingCopy> open_copies;
  std::vector<std::vector<PendingCopy>> copy_groups;
  unsigned lane() const { return number & 31; }
};

/// Lanes of a warp that wait for each other; masks that differ wait apart.
struct WarpBarrier {
  unsigned mask, present;
  void* arguments[32];
  Exchange exchange;
  const char* order;  ///< where the race checker is told, null where memory isn't ordered
};

struct Warp {
  unsigned living = 0;  ///< lanes that exist and haven't ended
  std::vector<WarpBarrier> barriers;
  // Where the race checker is told of orderings, by the first lane of the mask, in two turns: a lane that is ahead must
  // not release into what a slower one is about to acquire.
  char order[32][2] = {};
  unsigned turns[32] = {};
};

/// The blocks of a host thread, one after the other. Not for use by several threads.
class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner();

  /// Runs one block of a launch. Returns what it did wrong, empty if nothing.
  std::string run(const Launch& launch, unsigned block, const Config& config);

  /// The runner of the calling host thread, which must be running a block.
  static BlockRunner& current();
  static bool running_here();

  // What the device functions do, called on a CUDA thread.
  Thread& thread() { return *running_; }
  int sync_block(int value);
  void sync_warp(unsigned mask, void* argument, Exchange exchange, bool orders_memory);
  void* shared_object(const void* site, std::size_t bytes, std::size_t alignment);
  void* dynamic_shared() { return dynamic_shared_; }
  [[noreturn]] void abandon(std::string problem);
  void note(Access access, const void* address, std::size_t bytes, const std::source_location& where);
  bool is_shared(const void* address) const;
  void fence();
  void note_atomic(const void* p);

 private:
  static void run_threads();  // the loop on each fiber's stack
  void prepare(unsigned block);
  void release_shared();
  void abandon_threads();
  void end_thread();
  void complete_warp_barriers(Warp& warp);
  void complete(Warp& warp, std::size_t place);
  void wait(Thread::State state);
  void switch_to(Thread& next);
  Thread* take_ready();
  void make_ready(Thread& thread);
  Context* take_stack(const Thread& thread);
  std::string stuck() const;

  const Launch* launch_ = nullptr;
  const Config* config_ = nullptr;
  uint3 block_index_{};
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<WarpCounters> counters_;  // none unless accesses are counted
  SiteTotals totals_;
  std::vector<Thread*> ready_;  // a ring, its size a power of two
  std::size_t ready_first_ = 0, ready_count_ = 0;
  std::minstd_rand random_;
  Thread* running_ = nullptr;
  unsigned living_ = 0;
  std::string problem_;

  // The block's barrier.
  unsigned arrived_ = 0;
  int sum_ = 0, last_sum_ = 0;
  char order_[2] = {};
  unsigned turn_ = 0;

  // What the block did so far that orders it with others.
  bool fenced_ = false;
  std::vector<const void*> atomics_;

  struct SharedObject {
    const void* site;
    void* memory;
    std::size_t bytes;
  };
  std::vector<SharedObject> shared_;
  void* dynamic_shared_ = nullptr;

  Context host_;
  RaceContext host_race_ = nullptr;
  std::vector<std::unique_ptr<Context>> stacks_;
  std::vector<Context*> idle_stacks_;
  std::vector<RaceContext> race_contexts_;  // of two blocks, see prepare()
  bool second_ = false;                     // whose turn it is
};

}  // namespace cuda_emulation
