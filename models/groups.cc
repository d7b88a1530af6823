#include "models/groups.h"

#include <algorithm>

#include "core/kv/pages_needed.h"

namespace backplane::models {

std::vector<engine::KvGroup> kv_groups(const DecoderSpec& spec) {
  std::vector<engine::KvGroup> groups;
  for (const LayerSpec& layer : spec.layers) {
    const auto same = [&](const engine::KvGroup& g) { return g.window == layer.window; };
    const auto it = std::find_if(groups.begin(), groups.end(), same);
    if (it == groups.end()) {
      groups.push_back({layer.window, 1});
    } else {
      ++it->layers;
    }
  }
  std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.window < b.window; });
  return groups;
}

std::uint32_t group_of(const std::vector<engine::KvGroup>& groups, std::uint32_t window) {
  const auto it = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.window == window; });
  return static_cast<std::uint32_t>(it - groups.begin());
}

std::uint64_t group_pages(const engine::KvGroup& group, const LoadOptions& options) {
  const std::uint32_t chunk = std::min(options.max_step_tokens, options.context);
  const std::uint64_t all =
      options.max_sequences * kv::pages_needed(options.context, {group.window, options.page_size, chunk});
  if (options.kv_tokens == 0) return all;
  const std::uint64_t wanted = options.kv_tokens / options.page_size + (options.kv_tokens % options.page_size != 0);
  return std::min(all, wanted);
}

}  // namespace backplane::models
