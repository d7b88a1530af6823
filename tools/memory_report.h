// What a model will take, in words.
#pragma once

#include <cstdint>
#include <string>

#include "models/load.h"

namespace backplane::tools {

// "98.4 MB weights + 75.5 MB KV for 2048 tokens + 12.1 MB workspaces = 186.0 MB"
std::string describe_memory(const models::MemoryEstimate& memory, std::uint64_t tokens);

}  // namespace backplane::tools
