// Sweeps over the calls into the `opaque` plugin: the n-th fails, in each way a call can fail, for every n.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "tests/support/opaque_device.h"

namespace backplane::test {

struct FaultKind {
  const char* name;
  bp_status status;
  bool late;  // work on the stream fails there, and a later call tells
};
inline void PrintTo(const FaultKind& kind, std::ostream* out) { *out << kind.name; }

inline constexpr bp_status kUnknownStatus = 77;
inline constexpr FaultKind kFaultKinds[] = {
    {"OutOfMemory", BP_OUT_OF_MEMORY, false},  {"DeviceLost", BP_DEVICE_LOST, false},
    {"Internal", BP_INTERNAL, false},          {"Unsupported", BP_UNSUPPORTED, false},
    {"Unknown", kUnknownStatus, false},        {"OutOfMemoryLate", BP_OUT_OF_MEMORY, true},
    {"DeviceLostLate", BP_DEVICE_LOST, true},  {"InternalLate", BP_INTERNAL, true},
    {"UnsupportedLate", BP_UNSUPPORTED, true}, {"UnknownLate", kUnknownStatus, true},
};

// Its place in that list.
inline std::uint64_t number_of(const FaultKind& kind) {
  std::uint64_t n = 0;
  while (kFaultKinds[n].name != std::string(kind.name)) ++n;
  return n;
}

// Those after which the device is alive.
inline std::vector<FaultKind> lasting_kinds() {
  std::vector<FaultKind> kinds;
  for (const FaultKind& kind : kFaultKinds) {
    if (kind.status != BP_DEVICE_LOST) kinds.push_back(kind);
  }
  return kinds;
}

// Keeps warnings about faults that were wanted from the output.
class Quiet {
 public:
  Quiet() { set_log_level(LogLevel::kError); }
  ~Quiet() { set_log_level(LogLevel::kWarning); }
};

// Parts of a run by the number of the last call in each.
struct Phase {
  std::string name;
  std::uint64_t end = 0;
};

// What became of a fault.
enum class Fate {
  kTold,     // as an error, of the load or of a request
  kGoneOn,   // nobody who waits for tokens noticed: a question that was answered no, work that was done again
  kFailover  // another device took over
};

// One run with one fault. The device must be gone before expect_clean().
class Trial {
 public:
  // n = 0: none, to count calls.
  Trial(const FaultKind& kind, std::uint64_t n) : kind_(kind), n_(n) {}

  std::shared_ptr<device::Device> open(const std::string& options = {}, const std::set<std::string>& without = {});

  // From now on the n-th call from here fails, instead of what failed before; 0: none.
  void arm(std::uint64_t n);

  const FaultKind& kind() const { return kind_; }
  std::uint64_t calls() const { return report_.calls; }
  bool happened() const { return n_ != 0 && calls() >= n_; }
  bool loses() const { return kind_.status == BP_DEVICE_LOST; }

  // The error says what failed, on which device and in which call, and has the right code.
  void expect_told(const Error& error) const;
  // The device was closed, nothing of it was left, and a lost one was never called again.
  void expect_clean() const;

 private:
  FaultKind kind_;
  std::uint64_t n_;
  opaque::Report report_;
};

// Adds to the table that is printed when the program ends.
void note_fault(const std::string& phase, const FaultKind& kind, Fate fate);

// The same for what is no failed call: the second table.
void note_wrong(const std::string& what, bool told);

// Calls run(trial), which returns a Fate, with n = first, first + stride, ... until the run no longer reaches its
// fault. The phases are those of a run without one; what comes after the last of them is the unloading.
template <class Run>
void sweep(const FaultKind& kind, const std::string& what, const std::vector<Phase>& phases, Run&& run,
           std::uint64_t first = 1, std::uint64_t stride = 1) {
  std::size_t at = 0;
  for (std::uint64_t n = first; !testing::Test::HasFailure(); n += stride) {
    while (at < phases.size() && phases[at].end < n) ++at;
    const std::string phase = at < phases.size() ? phases[at].name : "unload";
    SCOPED_TRACE(what + ", " + phase + ", call " + std::to_string(n));
    Trial trial(kind, n);
    const Fate fate = run(trial);
    trial.expect_clean();
    if (!trial.happened()) {
      ASSERT_EQ(at, phases.size()) << "a run with a fault is shorter than one without";
      return;
    }
    note_fault(phase + " " + what, kind, fate);
  }
}

inline std::string kind_name(const testing::TestParamInfo<FaultKind>& each) { return each.param.name; }

}  // namespace backplane::test
