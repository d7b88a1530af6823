// How large each experiment is, so that all of them take about two minutes on whatever was chosen.
#pragma once

#include <cstdint>
#include <vector>

namespace backplane::lab {

// What a short run before the experiments has measured.
struct Speed {
  double token_s = 0;  // a token of a prompt, many in one step
  double step_s = 0;   // a step that computes one token
};

// What the loaded model allows.
struct Room {
  std::uint32_t context = 0;      // tokens of a sequence
  std::uint32_t step_tokens = 0;  // tokens of a step
  std::uint32_t sequences = 0;    // at once
};

// 0 tokens or an empty list: there is no room for the experiment.
struct CacheSizes {
  std::uint32_t prompt = 0, tokens = 0;
};
struct PhaseSizes {
  std::vector<std::uint32_t> prompts;  // ascending
  std::uint32_t decodes = 0, repeats = 0;
};
struct PaddingSizes {
  std::uint32_t rows = 0, longest = 0, reply = 0, repeats = 0;
};
struct BatchingSizes {
  std::uint32_t requests = 0, seats = 0;
  double seconds = 0;       // that serving them one after another should take
  std::uint32_t turns = 1;  // of each way, the fastest of which counts
};
struct LogitsSizes {
  std::vector<std::uint32_t> lengths;  // ascending
  std::uint32_t repeats = 0;
};
struct ContextSizes {
  std::vector<std::uint32_t> lengths;  // ascending
  std::uint32_t steps = 0;             // at each, twice
};

struct Sizes {
  CacheSizes cache;
  PhaseSizes phases;
  PaddingSizes padding;
  BatchingSizes batching;
  LogitsSizes logits;
  ContextSizes context;
};

// The least context with which every experiment has room.
inline constexpr std::uint32_t kLeastContext = 32;
// What to load the model with, where it allows that and memory suffices.
inline constexpr Room kWantedRoom = {.context = 2048, .step_tokens = 512, .sequences = 16};

// `quick`: the smallest that still shows something, for tests.
Sizes choose_sizes(const Speed& speed, const Room& room, bool quick);

}  // namespace backplane::lab
