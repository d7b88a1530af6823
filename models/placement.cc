// Which device each layer goes to.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "models/groups.h"
#include "models/load.h"

namespace backplane::models {
namespace {

std::string mib(std::uint64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

// Bytes of what one layer keeps on its device: its weights and its KV pages.
class LayerSizes {
 public:
  LayerSizes(const ModelFile& file, const LoadOptions& options) : file_(file) {
    const DecoderSpec& spec = file.spec();
    const std::vector<engine::KvGroup> groups = kv_groups(spec);
    for (const LayerSpec& layer : spec.layers) {
      const std::uint64_t pages = group_pages(groups[group_of(groups, layer.window)], options);
      const std::uint64_t kv = pages * options.page_size * spec.kv_heads *
                               (std::uint64_t{spec.head_dim} + spec.value_dim) *
                               dtype_info(options.kv_type).block_bytes / dtype_info(options.kv_type).block_elements;
      std::uint64_t weights = 0;
      for (const LinearRef* l :
           {&layer.q, &layer.k, &layer.v, &layer.qkv, &layer.o, &layer.gate, &layer.up, &layer.down}) {
        weights += bytes(l->weight);
      }
      layers_.push_back(weights + kv);
    }
  }

  const std::vector<std::uint64_t>& layers() const { return layers_; }
  std::uint64_t sum() const {
    std::uint64_t total = 0;
    for (const std::uint64_t layer : layers_) total += layer;
    return total;
  }

 private:
  std::uint64_t bytes(const MatrixRef& ref) const {
    if (!ref.present()) return 0;
    const formats::TensorInfo& tensor = file_.container().tensor(ref.name);
    return row_bytes(*tensor.type, ref.rows * ref.columns).value_or(0);
  }

  const ModelFile& file_;
  std::vector<std::uint64_t> layers_;
};

[[noreturn]] void refuse(const ModelFile& file, const std::vector<DeviceChoice>& choices, const LoadOptions& options,
                         std::uint64_t free) {
  const device::Device& device = *choices[0].device;
  const MemoryEstimate need = file.estimate(options, device);
  const auto fits = file.largest_context(options, free, device.activation_type());
  throw Error(ErrorCode::kCapacity,
              fmt::format("a context of {} needs {} (weights {}, KV {}, workspace {}) and {} are free", options.context,
                          mib(need.total()), mib(need.weights), mib(need.kv), mib(need.workspace), mib(free)),
              device.name(),
              fits ? fmt::format("use --ctx {} or less", *fits) : "use a smaller model or another device");
}

// Free bytes for layers. Devices that share memory share one account, the first such device's.
std::vector<std::uint64_t> accounts(const std::vector<DeviceChoice>& choices, std::vector<std::size_t>& account) {
  std::vector<std::uint64_t> free;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    std::size_t first = 0;
    while (!choices[first].device->shares_memory_with(*choices[i].device)) ++first;  // i itself, at the latest
    if (first < i) {
      account.push_back(account[first]);
      continue;
    }
    account.push_back(free.size());
    const std::uint64_t bytes = choices[i].device->current_caps().memory_free;
    free.push_back(bytes == 0 ? UINT64_MAX : bytes);
  }
  return free;
}

std::uint64_t saturated_sum(const std::vector<std::uint64_t>& parts) {
  std::uint64_t total = 0;
  for (const std::uint64_t part : parts) total = part > UINT64_MAX - total ? UINT64_MAX : total + part;
  return total;
}

void check_counts(const std::vector<DeviceChoice>& choices, std::size_t layers) {
  std::uint64_t named = 0;
  bool open = false;
  for (const DeviceChoice& choice : choices) {
    named += choice.layers.value_or(0);
    open = open || !choice.layers;
  }
  if (named > layers || (!open && named < layers)) {
    throw Error(ErrorCode::kUsage, fmt::format("{} layers were placed and the model has {}", named, layers), "--device",
                "make the numbers add up, or leave the last one out");
  }
}

}  // namespace

std::uint64_t free_bytes(const std::vector<DeviceChoice>& choices) {
  std::vector<std::size_t> account;
  return saturated_sum(accounts(choices, account));
}

DevicePlan place(const ModelFile& file, const std::vector<DeviceChoice>& choices, const LoadOptions& options) {
  const LayerSizes sizes(file, options);
  check_counts(choices, sizes.layers().size());
  std::vector<std::size_t> account;
  std::vector<std::uint64_t> free = accounts(choices, account);
  const std::uint64_t all = file.estimate(options, *choices[0].device).total();
  // What isn't in layers: embedding, head, activations. Counted where the model begins.
  const std::uint64_t rest = all - std::min(all, sizes.sum());
  const std::uint64_t total = saturated_sum(free);
  if (rest > free[0]) refuse(file, choices, options, total);
  free[0] -= rest;
  DevicePlan plan;
  for (const DeviceChoice& choice : choices) plan.devices.push_back(choice.device);
  std::size_t at = 0;
  std::uint32_t here = 0;
  for (std::size_t layer = 0; layer < sizes.layers().size(); ++layer) {
    const std::uint64_t bytes = sizes.layers()[layer];
    const auto full = [&] {
      const auto& wanted = choices[at].layers;
      return wanted ? here >= *wanted : free[account[at]] < bytes;
    };
    while (at < choices.size() && full()) {
      ++at;
      here = 0;
    }
    if (at == choices.size() || free[account[at]] < bytes) refuse(file, choices, options, total);
    free[account[at]] -= bytes;
    ++here;
    plan.homes.push_back(at);
  }
  return plan;
}

}  // namespace backplane::models
