// Functions of a warp: lanes that wait for each other and exchange values.
#include <bit>
#include <cstring>

#include "tests/cuda_emulation/block.h"

namespace cuda_emulation {

namespace {

// Where a lane waits: with those that gave the same mask, unless that is where it waited before.
std::size_t find_barrier(Warp& warp, unsigned mask, unsigned bit) {
  std::size_t place = 0;
  while (place < warp.barriers.size() &&
         (warp.barriers[place].mask != mask || (warp.barriers[place].present & bit) != 0)) {
    ++place;
  }
  if (place == warp.barriers.size()) {
    const Unchecked unchecked;
    warp.barriers.push_back({mask, 0, {}, nullptr, nullptr});
  }
  return place;
}

}  // namespace

void BlockRunner::sync_warp(unsigned mask, void* argument, Exchange exchange, bool orders_memory) {
  Warp& warp = warps_[running_->number / 32];
  const unsigned lane = running_->lane(), bit = 1u << lane,
                 first = static_cast<unsigned>(std::countr_zero(mask | 1u << 31));
  if ((mask & bit) == 0) {
    abandon("lane " + std::to_string(lane) + " calls a function of its warp with a mask that leaves it out");
  }
  const std::size_t place = find_barrier(warp, mask, bit);
  WarpBarrier& barrier = warp.barriers[place];
  const char* order = &warp.order[first][warp.turns[first] & 1];
  if (barrier.present != 0 && barrier.exchange != exchange) {
    abandon("lanes of a warp meet in different functions with the same mask");
  }
  barrier.present |= bit;
  barrier.arguments[lane] = argument;
  barrier.exchange = exchange;
  barrier.order = orders_memory ? order : nullptr;
  if (orders_memory) release(order);
  if (barrier.present == (mask & warp.living)) {
    complete(warp, place);
    if (config_->order == Order::kShuffled) {
      make_ready(*running_);
      switch_to(*take_ready());
    }
  } else {
    wait(Thread::State::kAtWarpBarrier);
  }
  if (orders_memory) acquire(order);
}

// All lanes that there are have come: exchanges what they brought and lets them go on.
void BlockRunner::complete(Warp& warp, std::size_t place) {
  const WarpBarrier& barrier = warp.barriers[place];
  ++warp.turns[std::countr_zero(barrier.mask)];
  if (barrier.order != nullptr) acquire(barrier.order);
  if (barrier.exchange != nullptr) {
    // One lane's hands on the stacks of all, visible where the compiler makes memset or memcpy of a loop.
    const Unchecked unchecked;
    barrier.exchange(barrier.arguments, barrier.present);
  }
  if (barrier.order != nullptr) release(barrier.order);
  Thread* lanes = threads_.data() + static_cast<std::size_t>(running_->number / 32) * 32;
  for (unsigned present = barrier.present; present != 0; present &= present - 1) {
    Thread& other = lanes[std::countr_zero(present)];
    if (other.state == Thread::State::kAtWarpBarrier) make_ready(other);
  }
  const Unchecked unchecked;
  if (place + 1 < warp.barriers.size()) warp.barriers[place] = warp.barriers.back();
  warp.barriers.pop_back();
}

// A lane that ends is no longer waited for.
void BlockRunner::complete_warp_barriers(Warp& warp) {
  for (std::size_t i = warp.barriers.size(); i-- > 0;) {
    if (warp.barriers[i].present == (warp.barriers[i].mask & warp.living)) complete(warp, i);
  }
}

unsigned lane() { return BlockRunner::current().thread().lane(); }
int sync_block(int value) { return BlockRunner::current().sync_block(value); }
void sync_warp(unsigned mask, void* argument, Exchange exchange) {
  BlockRunner::current().sync_warp(mask, argument, exchange, true);
}
void* shared_object(const void* site, std::size_t bytes, std::size_t alignment) {
  return BlockRunner::current().shared_object(site, bytes, alignment);
}
void* dynamic_shared() { return BlockRunner::current().dynamic_shared(); }
void trap(const char* reason) { BlockRunner::current().abandon(std::string("trap: ") + reason); }

namespace {

struct Shuffle {
  std::uint64_t value, result;
  unsigned source;
};

void exchange_values(void* const* arguments, unsigned present) {
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((present >> lane & 1) == 0) continue;
    auto& own = *static_cast<Shuffle*>(arguments[lane]);
    const bool there = own.source < 32 && (present >> own.source & 1) != 0;
    own.result = there ? static_cast<const Shuffle*>(arguments[own.source])->value : ~std::uint64_t{0};
  }
}

struct Vote {
  unsigned votes;
  bool own;
};

void exchange_votes(void* const* arguments, unsigned present) {
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((present >> lane & 1) != 0 && static_cast<const Vote*>(arguments[lane])->own) votes |= 1u << lane;
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((present >> lane & 1) != 0) static_cast<Vote*>(arguments[lane])->votes = votes;
  }
}

}  // namespace

std::uint64_t shuffle(unsigned mask, std::uint64_t value, unsigned source) {
  Shuffle own{value, 0, source};
  BlockRunner::current().sync_warp(mask, &own, exchange_values, false);
  return own.result;
}

unsigned ballot(unsigned mask, bool predicate) {
  Vote own{0, predicate};
  BlockRunner::current().sync_warp(mask, &own, exchange_votes, false);
  return own.votes;
}

}  // namespace cuda_emulation
