#include "models/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "models/decoder.h"
#include "models/groups.h"
#include "models/registry.h"

namespace backplane::models {
namespace {

constexpr std::uint32_t kPageSize = 16;

// Fills in what the caller left to us.
LoadOptions resolved(LoadOptions options, const DecoderSpec& spec, DType activation) {
  if (options.context == 0) options.context = spec.max_context;
  options.max_step_tokens =
      std::clamp<std::uint32_t>(options.max_step_tokens, 1, options.context * options.max_sequences);
  if (options.page_size == 0) options.page_size = kPageSize;
  if (options.kv_type == DType::kNone) options.kv_type = activation;
  return options;
}

std::uint64_t kv_bytes(const DecoderSpec& spec, const LoadOptions& options) {
  const std::vector<engine::KvGroup> groups = kv_groups(spec);
  device::KvSpec kv;
  kv.type = options.kv_type;
  kv.page_size = options.page_size;
  for (const engine::KvGroup& group : groups) kv.pages.push_back(group_pages(group, options));
  for (const LayerSpec& layer : spec.layers) {
    kv.layers.push_back({spec.kv_heads, spec.head_dim, spec.value_dim, group_of(groups, layer.window)});
  }
  return kv.bytes();
}

std::string mib(std::uint64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

void refuse_what_cannot_fit(const ModelFile& file, const LoadOptions& options, device::Device& device) {
  const std::uint64_t free = device.current_caps().memory_free;
  const MemoryEstimate need = file.estimate(options, device.activation_type());
  if (free == 0 || need.total() <= free) return;
  const auto fits = file.largest_context(options, free, device.activation_type());
  throw Error(ErrorCode::kCapacity,
              fmt::format("a context of {} needs {} (weights {}, KV {}, workspace {}) and {} are free", options.context,
                          mib(need.total()), mib(need.weights), mib(need.kv), mib(need.workspace), mib(free)),
              device.name(),
              fits ? fmt::format("use --ctx {} or less", *fits) : "use a smaller model or another device");
}

}  // namespace

ModelFile::ModelFile(const std::filesystem::path& path) : ModelFile(formats::open_container(path)) {}

ModelFile::ModelFile(std::shared_ptr<const formats::Container> container)
    : container_(std::move(container)), spec_(read_spec(*container_)) {}

std::uint64_t ModelFile::parameters() const {
  std::uint64_t sum = 0;
  for (const formats::TensorInfo& tensor : container_->tensors()) sum += tensor.elements();
  return sum;
}

MemoryEstimate ModelFile::estimate(const LoadOptions& given, DType activation) const {
  const LoadOptions options = resolved(given, spec_, activation);
  MemoryEstimate need;
  for (const formats::TensorInfo& tensor : container_->tensors()) need.weights += tensor.data.size();
  need.kv = kv_bytes(spec_, options);
  const std::uint64_t size = dtype_info(activation).block_bytes;
  const std::uint64_t heads = std::uint64_t{spec_.heads} * (spec_.head_dim + spec_.value_dim) +
                              std::uint64_t{spec_.kv_heads} * (spec_.head_dim + spec_.value_dim);
  const std::uint64_t token = (3ull * spec_.hidden + heads + 2ull * spec_.ffn) * size;
  const std::uint64_t row = (std::uint64_t{spec_.hidden} + spec_.vocab_size) * size;
  need.workspace = token * options.max_step_tokens + row * std::min<std::uint64_t>(32, options.max_step_tokens);
  return need;
}

std::optional<std::uint32_t> ModelFile::largest_context(LoadOptions options, std::uint64_t bytes,
                                                        DType activation) const {
  options = resolved(options, spec_, activation);
  const std::uint32_t step = options.max_step_tokens;
  const auto fits = [&](std::uint32_t context) {
    options.context = context;
    options.max_step_tokens = std::min(step, context * options.max_sequences);
    return estimate(options, activation).total() <= bytes;
  };
  std::uint32_t low = 0, high = spec_.max_context;
  while (low < high) {  // invariant: low fits or is 0, all above high don't
    const std::uint32_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  if (low == 0) return std::nullopt;
  return low;
}

std::unique_ptr<LoadedModel> load(const ModelFile& file, std::shared_ptr<device::Device> chosen,
                                  std::shared_ptr<device::Device> reference, LoadOptions options) {
  const bp_caps& caps = chosen->caps();
  if (options.page_size == 0 && caps.page_sizes[0] != 0) options.page_size = caps.page_sizes[0];
  options = resolved(std::move(options), file.spec(), chosen->activation_type());
  if (file.spec().context_is_hard && options.context > file.spec().max_context) {
    throw Error(ErrorCode::kCapacity,
                fmt::format("a context of {} is more than the {} positions that the model has", options.context,
                            file.spec().max_context),
                file.container().path().string(), fmt::format("use --ctx {} or less", file.spec().max_context));
  }
  if (caps.max_tokens != 0) options.max_step_tokens = std::min(options.max_step_tokens, caps.max_tokens);
  if (!is_float(options.kv_type)) {
    throw Error(ErrorCode::kUsage, fmt::format("KV type {} is not supported", dtype_name(options.kv_type)), "--kv-type",
                "use F32, F16, BF16 or F64");
  }
  refuse_what_cannot_fit(file, options, *chosen);
  return std::make_unique<Decoder>(file, std::move(chosen), std::move(reference), options);
}

}  // namespace backplane::models
