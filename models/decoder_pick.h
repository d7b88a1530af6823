// What a decoder keeps for steps that end with picks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/device/executor.h"
#include "core/device/landing.h"

namespace backplane::models {

struct DecoderPicking {
  // What comes back of one step.
  struct Slot {
    device::Landing room;
    std::unique_ptr<device::Event> done;
    std::uint32_t rows = 0;
  };

  device::Tensor rows, ids, values, targets;
  std::size_t ops = 0;                    // the first op of this end, among all
  bool follows = false;                   // the step being issued begins with picks of the one before
  std::vector<std::int32_t> targets_set;  // what `targets` holds
  std::array<Slot, 2> slots;
  std::size_t next = 0, under_way = 0;  // slots: the next to begin; how many before it have begun
};

}  // namespace backplane::models
