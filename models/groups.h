// The KV groups of a model and the pages each needs.
#pragma once

#include <cstdint>
#include <vector>

#include "core/engine/model.h"
#include "models/load.h"

namespace backplane::models {

// Layers of one window size form a group; full attention first where there is any.
std::vector<engine::KvGroup> kv_groups(const DecoderSpec& spec);
std::uint32_t group_of(const std::vector<engine::KvGroup>& groups, std::uint32_t window);

// Pages for options.max_sequences sequences of options.context tokens, or for options.kv_tokens where they are fewer;
// at least one.
std::uint64_t group_pages(const engine::KvGroup& group, const LoadOptions& options);

}  // namespace backplane::models
