#include "tests/cuda_emulation/block.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local dim3 blockDim{};
constinit thread_local dim3 gridDim{};

namespace cuda_emulation {

namespace {

thread_local BlockRunner* current_runner = nullptr;

// All bits set is a NaN in every floating-point type and -1 in every integer.
void* poisoned(std::size_t bytes, std::size_t alignment) {
  const Unchecked unchecked;  // no CUDA thread wrote this
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  // The exact size where that is possible, so that AddressSanitizer's red zone begins where the object ends.
  void* memory = alignment <= alignof(std::max_align_t) ? std::malloc(bytes) : std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return std::memset(memory, 0xff, bytes);
}

}  // namespace

BlockRunner::BlockRunner() = default;

BlockRunner::~BlockRunner() {
  for (RaceContext race : race_contexts_) destroy_race_context(race);
}

BlockRunner& BlockRunner::current() { return *current_runner; }
bool BlockRunner::running_here() { return current_runner != nullptr; }

std::string BlockRunner::run(const Launch& launch, unsigned block, const Config& config) {
  launch_ = &launch;
  config_ = &config;
  current_runner = this;
  prepare(block);
  host_race_ = current_race_context();
  if (Thread* first = take_ready()) {
    running_ = first;
    first->context = take_stack(*first);
    threadIdx = first->index;
    blockIdx = block_index_;
    blockDim = launch_->block;
    gridDim = launch_->grid;
    first->context->switch_from(host_, first->race);
  }
  acquire(this);
  if (problem_.empty() && living_ > 0) problem_ = stuck();
  if (living_ > 0) abandon_threads();
  {
    const Unchecked unchecked;
    release_shared();
    threads_.clear();
    warps_.clear();
    for (WarpCounters& warp : counters_) warp.finish(totals_);
    counters_.clear();
  }
  if (!totals_.empty()) add_counts(kernel_name(launch.kernel), std::exchange(totals_, {}));
  current_runner = nullptr;
  return std::exchange(problem_, {});
}

// Threads that will never continue: what they did is over, and their stacks start anew.
void BlockRunner::abandon_threads() {
  for (RaceContext race : race_contexts_) {
    become(race);
    release(this);
    become(host_race_);
    acquire(this);
    destroy_race_context(race);
  }
  race_contexts_.clear();
  idle_stacks_.clear();
  for (auto& stack : stacks_) {
    stack->prepare(&BlockRunner::run_threads);
    if (kStacksAreShared) idle_stacks_.push_back(stack.get());
  }
}

void BlockRunner::prepare(unsigned block) {
  const dim3 grid = launch_->grid, size = launch_->block;
  block_index_ = {block % grid.x, block / grid.x % grid.y, block / (grid.x * grid.y)};
  const unsigned count = size.x * size.y * size.z;
  threads_.assign(count, Thread{});
  warps_.assign((count + 31) / 32, Warp{});
  ready_.resize(std::bit_ceil(count));
  ready_first_ = ready_count_ = 0;
  living_ = count;
  arrived_ = 0;
  sum_ = 0;
  fenced_ = false;
  atomics_.clear();
  // Two blocks that follow each other have contexts of their own, or a race between their threads of the same number
  // would look like the order in which one thread did both.
  while (race_contexts_.size() < 2 * std::size_t{count}) race_contexts_.push_back(make_race_context());
  second_ = !second_;
  for (unsigned i = 0; i < count; ++i) {
    make_ready(threads_[config_->order == Order::kDescending ? count - 1 - i : i]);
    threads_[i].index = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
    threads_[i].number = i;
    threads_[i].place = second_ ? i + std::size_t{count} : i;
    threads_[i].race = race_contexts_[threads_[i].place];
    warps_[i / 32].living |= 1u << (i & 31);
  }
  if (config_->order == Order::kShuffled) {
    random_.seed(static_cast<unsigned>(config_->seed * 7919 + block + 1));
  }
  for (std::size_t i = 0; config_->count_accesses && i < warps_.size(); ++i) counters_.emplace_back(warps_[i].living);
  if (launch_->dynamic_shared > 0) dynamic_shared_ = poisoned(launch_->dynamic_shared, 16);
}

void BlockRunner::release_shared() {
  for (SharedObject& object : shared_) std::free(object.memory);
  shared_.clear();
  std::free(std::exchange(dynamic_shared_, nullptr));
}

void* BlockRunner::shared_object(const void* site, std::size_t bytes, std::size_t alignment) {
  for (const SharedObject& object : shared_) {
    if (object.site == site) return object.memory;
  }
  const Unchecked unchecked;
  shared_.push_back({site, poisoned(bytes, std::max<std::size_t>(alignment, 16)), bytes});
  return shared_.back().memory;
}

// Runs on every fiber's stack: one thread of the block after the other, until it has to leave the stack to another.
void BlockRunner::run_threads() {
  for (;;) {
    BlockRunner& self = current();
    acquire(self.launch_);
    self.launch_->body();
    self.end_thread();
  }
}

void BlockRunner::end_thread() {
  Thread& ended = *running_;
  if (arrived_ > 0) abandon(std::to_string(arrived_) + " threads wait at __syncthreads, and another ended without");
  release(this);
  ended.state = Thread::State::kEnded;
  --living_;
  Warp& warp = warps_[ended.number / 32];
  warp.living &= ~(1u << ended.lane());
  if (!warp.barriers.empty()) complete_warp_barriers(warp);
  Thread* next = take_ready();
  Context* own = std::exchange(ended.context, nullptr);
  if (kStacksAreShared && next != nullptr && next->context == nullptr) {  // not started: this stack serves
    running_ = next;
    next->context = own;
    threadIdx = next->index;
    become(next->race);
    return;
  }
  if (kStacksAreShared) idle_stacks_.push_back(own);
  if (next == nullptr) {
    host_.switch_from(*own, host_race_);
  } else {
    if (next->context == nullptr) next->context = take_stack(*next);
    running_ = next;
    threadIdx = next->index;
    next->context->switch_from(*own, next->race);
  }
}

void BlockRunner::wait(Thread::State state) {
  Thread& self = *running_;
  self.state = state;
  Thread* next = take_ready();
  if (next == nullptr) {
    host_.switch_from(*self.context, host_race_);
    return;
  }
  switch_to(*next);
}

void BlockRunner::switch_to(Thread& next) {
  Thread& self = *running_;
  if (&next == &self) return;
  if (next.context == nullptr) next.context = take_stack(next);
  running_ = &next;
  threadIdx = next.index;
  next.context->switch_from(*self.context, next.race);
}

void BlockRunner::make_ready(Thread& thread) {
  thread.state = Thread::State::kReady;
  ready_[(ready_first_ + ready_count_++) & (ready_.size() - 1)] = &thread;
}

Thread* BlockRunner::take_ready() {
  if (ready_count_ == 0) return nullptr;
  if (config_->order == Order::kShuffled) {  // any of those that could run
    const std::size_t chosen = (ready_first_ + random_() % ready_count_) & (ready_.size() - 1);
    std::swap(ready_[ready_first_], ready_[chosen]);
  }
  Thread* next = ready_[ready_first_];
  ready_first_ = (ready_first_ + 1) & (ready_.size() - 1);
  --ready_count_;
  return next;
}

Context* BlockRunner::take_stack(const Thread& thread) {
  const Unchecked unchecked;
  if (kStacksAreShared && !idle_stacks_.empty()) {
    Context* stack = idle_stacks_.back();
    idle_stacks_.pop_back();
    return stack;
  }
  const std::size_t place = kStacksAreShared ? stacks_.size() : thread.place;
  while (stacks_.size() <= place) {
    stacks_.push_back(std::make_unique<Context>());
    stacks_.back()->prepare(&BlockRunner::run_threads);
  }
  return stacks_[place].get();
}

int BlockRunner::sync_block(int value) {
  const unsigned turn = turn_;
  sum_ += value;
  ++arrived_;
  release(&order_[turn & 1]);
  if (living_ < threads_.size()) abandon("a thread waits at __syncthreads after others of the block have ended");
  if (arrived_ < living_) {
    wait(Thread::State::kAtBlockBarrier);
  } else {
    last_sum_ = std::exchange(sum_, 0);
    arrived_ = 0;
    ++turn_;
    for (Thread& other : threads_) {
      if (other.state == Thread::State::kAtBlockBarrier) make_ready(other);
    }
    if (config_->order == Order::kShuffled) {
      make_ready(*running_);
      switch_to(*take_ready());
    }
  }
  acquire(&order_[turn & 1]);
  return last_sum_;
}

void BlockRunner::abandon(std::string problem) {
  {
    const Unchecked unchecked;
    problem_.swap(problem);
  }
  release(this);
  for (;;) host_.switch_from(*running_->context, host_race_);
}

std::string BlockRunner::stuck() const {
  unsigned at_block = 0, at_warp = 0;
  for (const Thread& thread : threads_) {
    at_block += thread.state == Thread::State::kAtBlockBarrier;
    at_warp += thread.state == Thread::State::kAtWarpBarrier;
  }
  return "deadlock: of " + std::to_string(threads_.size()) + " threads, " + std::to_string(threads_.size() - living_) +
         " have ended, " + std::to_string(at_block) + " wait at __syncthreads and " + std::to_string(at_warp) +
         " at a function of their warp";
}

}  // namespace cuda_emulation
