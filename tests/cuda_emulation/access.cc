// Where kernels' accesses reach the counters, and asynchronous copies wait to land.
#include "tests/cuda_emulation/include/cuda_emulation/access.h"

#include <cstring>
#include <utility>

#include "tests/cuda_emulation/block.h"
#include "tests/cuda_emulation/include/cuda_emulation/pipeline.h"

namespace cuda_emulation {

bool BlockRunner::is_shared(const void* address) const {
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  const auto holds = [place](const void* first, std::size_t bytes) {
    const auto start = reinterpret_cast<std::uintptr_t>(first);
    return place >= start && place - start < bytes;
  };
  for (const SharedObject& object : shared_) {
    if (holds(object.memory, object.bytes)) return true;
  }
  return dynamic_shared_ != nullptr && holds(dynamic_shared_, launch_->dynamic_shared);
}

void BlockRunner::note(Access access, const void* address, std::size_t bytes, const std::source_location& where) {
  if (counters_.empty()) return;
  const Unchecked unchecked;
  counters_[running_->number / 32].note(totals_, running_->lane(), access, reinterpret_cast<std::uintptr_t>(address),
                                        bytes, where);
}

void note_access(Access access, const void* address, std::size_t bytes, std::source_location where) {
  if (!BlockRunner::running_here()) return;  // the host called a function that kernels share with it
  BlockRunner::current().note(access, address, bytes, where);
}
void note_load(const void* address, std::size_t bytes, std::source_location where) {
  const bool shared = BlockRunner::current().is_shared(address);
  note_access(shared ? Access::kSharedLoad : Access::kGlobalLoad, address, bytes, where);
}
void note_store(const void* address, std::size_t bytes, std::source_location where) {
  const bool shared = BlockRunner::current().is_shared(address);
  note_access(shared ? Access::kSharedStore : Access::kGlobalStore, address, bytes, where);
}

void copy_async(void* to, const void* from, std::size_t bytes, std::size_t zeros, std::source_location where) {
  BlockRunner& block = BlockRunner::current();
  const auto misplaced = (reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % bytes;
  if (misplaced != 0)
    block.abandon("an asynchronous copy of " + std::to_string(bytes) + " bytes isn't aligned to them");
  if (!block.is_shared(to)) block.abandon("an asynchronous copy goes to memory that isn't shared");
  block.note(Access::kGlobalLoad, from, bytes, where);
  block.note(Access::kSharedStore, to, bytes, where);
  const Unchecked unchecked;
  block.thread().open_copies.push_back({to, from, bytes, zeros});
}

void commit_copies() {
  const Unchecked unchecked;
  Thread& thread = BlockRunner::current().thread();
  thread.copy_groups.push_back(std::exchange(thread.open_copies, {}));
}

void wait_copies(std::size_t groups_left) {
  auto& groups = BlockRunner::current().thread().copy_groups;
  while (groups.size() > groups_left) {
    for (const PendingCopy& copy : groups.front()) {
      std::memcpy(copy.to, copy.from, copy.bytes - copy.zeros);
      std::memset(static_cast<char*>(copy.to) + copy.bytes - copy.zeros, 0, copy.zeros);
    }
    const Unchecked unchecked;  // not the copies themselves: those are the thread's own stores
    groups.erase(groups.begin());
  }
}

}  // namespace cuda_emulation
