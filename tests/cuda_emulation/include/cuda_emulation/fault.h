// Faults that the code under test carries, each behind a name, all off: to see that a test finds them.
#pragma once

namespace cuda_emulation {

/// Whether the environment's CUDA_EMULATION_FAULT is this name. Constant for the life of the process.
bool is_faulty(const char* name);

}  // namespace cuda_emulation

/// `is_faulty`, asked once at each place.
#define CUDA_EMULATION_FAULT(name)                                   \
  ([] {                                                              \
    static const bool faulty = ::cuda_emulation::is_faulty("" name); \
    return faulty;                                                   \
  }())
