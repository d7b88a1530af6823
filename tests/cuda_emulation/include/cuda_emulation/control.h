// What a test asks of the emulated devices: how they behave, what goes wrong and when, and what was counted. Every
// value can also come from the environment, for programs that only load a plugin. Functions may be called from any
// thread.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cuda_emulation {

/// In which order the threads of a block run between two synchronizations.
enum class Order : int { kAscending, kDescending, kShuffled };

/// The emulated cuBLASLt: there, not to be found, without an algorithm for anything, with algorithms that take only
/// even numbers of tokens, or there in the version that comes first but unable to start in that.
enum class Blas : int { kThere, kMissing, kRefuses, kRefusesOdd, kTooNew };

/// How the devices behave. Read when a device is first used, and again by configure().
struct Config {
  int devices = 1;                    ///< CUDA_EMULATION_DEVICES
  std::uint64_t memory = 8ULL << 30;  ///< bytes a device; CUDA_EMULATION_MEMORY_MB
  int major = 8, minor = 0;           ///< compute capability; CUDA_EMULATION_ARCH=80
  int processors = 8;                 ///< multiprocessors; CUDA_EMULATION_PROCESSORS
  int threads = 0;                    ///< host threads that run blocks, 0 for all; CUDA_EMULATION_THREADS
  Order order = Order::kAscending;    ///< CUDA_EMULATION_ORDER=ascending|descending|SEED
  std::uint64_t seed = 1;             ///< of the shuffled order
  bool deferred = true;               ///< work waits until something waits for it; CUDA_EMULATION_STREAMS=immediate
  bool run_kernels = true;            ///< false: launches are checked and recorded, kernels do nothing, memory is zero;
                                      ///< CUDA_EMULATION_KERNELS=skip
  Blas blas = Blas::kThere;           ///< CUDA_EMULATION_BLAS=missing|refuses
  bool count_accesses = false;        ///< CUDA_EMULATION_COUNT=1 (counts are printed when the program ends)
};

/// The configuration that the environment asks for.
Config config_from_environment();

/// Forgets all errors, injected faults, counters and call counts, and applies a configuration. No memory, stream or
/// event may be in use.
void configure(const Config& config);

/// What goes wrong by order. Counts start at 1 and at configure(); 0 is never.
struct Faults {
  std::uint64_t loss_at_call = 0;       ///< this API call loses its device (CUDA_EMULATION_LOSS_AT)
  std::uint64_t oom_at_allocation = 0;  ///< this allocation fails (CUDA_EMULATION_OOM_AT)
  std::uint64_t late_error_at_launch =
      0;  ///< this kernel fails, which the next wait finds out (CUDA_EMULATION_LATE_AT)
};
void inject(const Faults& faults);

/// API calls since configure(): all of them, or those of one name, such as "cudaLaunchKernelExC".
std::uint64_t calls();
std::uint64_t calls(const std::string& name);

/// Bytes that copies have moved since configure(), by direction.
std::uint64_t copied(cudaMemcpyKind kind);

/// The last thing that a kernel did wrong (a barrier that not all reach, a trap), with its name and block; else empty.
std::string last_report();

/// Bytes of dynamic shared memory that launches of the kernel whose demangled name contains `name` may ask for, as
/// cudaFuncSetAttribute said last; 0 if it didn't since configure().
int shared_limit(const std::string& name);

/// What counted accesses (access.h) cost. A request is what the lanes of a warp access together. Its cost in global
/// memory is the sectors of 32 bytes that it touches, at best as many as its bytes fill; in shared memory, the turns
/// that the 32 banks of 4 bytes need, at best one for each 128 bytes' worth of lanes.
struct AccessCounts {
  std::uint64_t requests = 0;
  std::uint64_t bytes = 0;  ///< that the lanes asked for, each for itself
  std::uint64_t cost = 0, minimum = 0;
  AccessCounts& operator+=(const AccessCounts& other);
};

struct SiteCounts {
  std::string file;
  unsigned line = 0;
  std::string access;  ///< "global load" and so on
  unsigned width = 0;  ///< bytes a lane
  AccessCounts counts;
};

struct KernelCounts {
  AccessCounts global_loads, global_stores, shared_loads, shared_stores;
  std::vector<SiteCounts> sites;  ///< where it happens, the most wasteful first
};

/// Counts since configure() of the kernel whose demangled name contains `name`; all zero if there is none. Needs
/// Config::count_accesses. Lanes are matched by how often each has executed an access: exact as long as lanes that skip
/// one don't execute it later.
KernelCounts kernel_counts(const std::string& name);
/// A line for each kernel, and one for each access that costs more than it must.
std::string count_report();

}  // namespace cuda_emulation
