// Which of several settings is the fastest on this machine, by a short trial.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace backplane::tuning {

// Seconds of a prompt and of some steps of a reply.
struct Sample {
  double prefill = 0, decode = 0;
};

struct Limits {
  double seconds = 0.3;      // after which no further round begins
  std::uint32_t rounds = 7;  // at most
  std::uint32_t least = 3;   // without which nothing is chosen; they may take twice the time
  double gain = 0.07;        // by which a setting has to be better in prompts or replies, in the median
  double loss = 0.02;        // by which it may be worse in the other
};

struct Choice {
  std::size_t setting = 0;
  std::string why;  // for people
};

// Number 0 is the default. A setting is chosen instead only if it is better by `gain` in prompts or replies, better
// there in every single round, and not worse than `loss` in the other; of several, the one with the least time in both.
// measure(i) runs setting i once; the first run of each isn't counted, and the order changes from round to round.
// clock(): seconds. Throws what they throw.
Choice choose(std::size_t settings, const std::function<Sample(std::size_t)>& measure,
              const std::function<double()>& clock, const Limits& limits = {});

}  // namespace backplane::tuning
