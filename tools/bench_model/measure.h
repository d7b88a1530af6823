// How fast a loaded model computes prompts and replies.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/device/executor.h"
#include "models/load.h"
#include "tools/lab/setup.h"
#include "tools/lab/work.h"

namespace backplane::bench {

enum class Kind : std::uint8_t { kPrefill, kDecode };

// A prompt of so many tokens, with the first token of its reply; or so many greedy steps of a batch, each a token of
// every sequence, with `depth` tokens in the cache of each before the first. A depth of 0 is one of 1: a sequence needs
// a token to go on from.
struct Case {
  Kind kind = Kind::kPrefill;
  std::uint32_t tokens = 0, batch = 1, depth = 0;

  std::uint32_t prompt() const;
  std::uint32_t length() const;  // that a sequence reaches at most
  std::uint64_t new_tokens() const { return std::uint64_t{tokens} * batch; }
};

// The least that the case has to move and to compute: of a decode, its middle step times the steps.
lab::Work work_of(const lab::StepWork& work, const Case& what, std::uint32_t step_tokens);

struct Bench {
  models::LoadedModel& model;  // no engine lives on it
  const lab::Prompts& prompts;
  lab::Room room;
};

// Runs it once: seconds of its steps, with sampling and all that the engine does. `times`: nullptr, or cleared and
// filled with the ops of these steps. `warm`: for a run that doesn't count, of which all that happens once is done
// afterwards, such as recordings of steps. Throws Error{kCapacity} where the batch can't run at once, and kInterrupted.
double run_once(const Bench& bench, const Case& what, device::OpTimes* times = nullptr, bool warm = false);

struct Measured {
  Case what;
  std::vector<double> seconds;  // of the repetitions
  // In these, where the device records steps: recordings belong into the run that isn't counted.
  std::uint64_t steps_recorded = 0, steps_launched = 0;
};

// Once uncounted, then so many times, all cases in turn, so that what disturbs the machine for a while spoils one
// repetition of each only. `progress` may throw.
std::vector<Measured> measure(const Bench& bench, const std::vector<Case>& cases, std::uint32_t repeats,
                              const std::function<void(std::uint64_t done, std::uint64_t total)>& progress);

// Where the time of one more run goes.
struct OpTable {
  Case what;
  double seconds = 0;  // of the whole run
  device::OpTimes ops;
};
OpTable op_table(const Bench& bench, const Case& what);

}  // namespace backplane::bench
