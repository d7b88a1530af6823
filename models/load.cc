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
  options.max_step_tokens = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(options.max_step_tokens, 1, std::uint64_t{options.context} * options.max_sequences));
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

}  // namespace

ModelFile::ModelFile(const std::filesystem::path& path) : ModelFile(formats::open_container(path)) {}

ModelFile::ModelFile(std::shared_ptr<const formats::Container> container)
    : container_(std::move(container)), spec_(read_spec(*container_)) {}

std::uint64_t ModelFile::parameters() const {
  std::uint64_t sum = 0;
  for (const formats::TensorInfo& tensor : container_->tensors()) sum += tensor.elements();
  return sum;
}

ModelFile ModelFile::first_layers(std::uint32_t layers) const {
  ModelFile part = *this;
  if (layers < part.spec_.layers.size()) part.spec_.layers.resize(layers);
  return part;
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

MemoryEstimate ModelFile::estimate(const LoadOptions& options, const device::Device& device) const {
  MemoryEstimate need = estimate(options, device.activation_type());
  if (device.tables().weights->create) return need;  // packed by the plugin: about as large as in the file
  std::uint64_t converted = 0;                       // the bytes of a value after conversion
  for (const DType type : {DType::kF32, device.activation_type(), DType::kF64, DType::kBF16, DType::kF16}) {
    if (converted == 0 && device.takes_weight_type(type)) converted = dtype_info(type).block_bytes;
  }
  need.weights = 0;
  for (const formats::TensorInfo& tensor : container_->tensors()) {
    const bool as_is =
        tensor.shape.size() != 2 || converted == 0 || !tensor.type || device.takes_weight_type(*tensor.type);
    need.weights += as_is ? tensor.data.size() : tensor.elements() * converted;
  }
  return need;
}

std::optional<std::uint32_t> ModelFile::largest_context(LoadOptions options, std::uint64_t bytes,
                                                        DType activation) const {
  options = resolved(options, spec_, activation);
  const std::uint32_t step = options.max_step_tokens;
  const auto fits = [&](std::uint32_t context) {
    options.context = context;
    options.max_step_tokens =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(step, std::uint64_t{context} * options.max_sequences));
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

std::uint64_t ModelFile::most_kv_tokens(LoadOptions options, std::uint64_t bytes, const device::Device& device) const {
  options.kv_tokens = 0;
  options = resolved(options, spec_, device.activation_type());
  const auto fits = [&](std::uint64_t pages) {
    options.kv_tokens = pages * options.page_size;
    return estimate(options, device).total() <= bytes;
  };
  const std::uint64_t page = options.page_size;
  std::uint64_t low = 0, high = options.max_sequences * ((std::uint64_t{options.context} + page - 1) / page);
  while (low < high) {  // invariant: low fits or is 0, all above high don't
    const std::uint64_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low * page;
}

namespace {

// The best page size of the first device that all others can have too.
std::uint32_t common_page_size(const device::Devices& devices) {
  const auto takes = [](const device::Device& device, std::uint32_t size) {
    const auto& sizes = device.caps().page_sizes;
    return sizes[0] == 0 || std::find(std::begin(sizes), std::end(sizes), size) != std::end(sizes);
  };
  std::vector<std::uint32_t> candidates;
  for (const auto& device : devices) {
    for (const std::uint32_t size : device->caps().page_sizes) {
      if (size == 0) break;
      candidates.push_back(size);
    }
  }
  candidates.push_back(kPageSize);
  for (const std::uint32_t size : candidates) {
    if (std::all_of(devices.begin(), devices.end(), [&](const auto& d) { return takes(*d, size); })) return size;
  }
  throw Error(ErrorCode::kDevice, "the devices have no KV page size in common", devices[0]->name(),
              "choose other devices");
}

void check_kv_type(DType type, const DecoderSpec& spec) {
  if (type != DType::kQ8_0 && type != DType::kF8E4M3 && !is_float(type)) {
    throw Error(ErrorCode::kUsage, fmt::format("KV type {} is not supported", dtype_name(type)), "--kv-type",
                "use F32, F16, BF16, F64, F8_E4M3 or Q8_0");
  }
  const std::uint32_t block = dtype_info(type).block_elements;
  if (spec.head_dim % block != 0 || spec.value_dim % block != 0) {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("KV type {} needs heads of whole blocks of {}, and this model's keys have {}, its values {}",
                    dtype_name(type), block, spec.head_dim, spec.value_dim),
        "--kv-type", "use F16");
  }
}

}  // namespace

LoadOptions resolve(LoadOptions options, const DecoderSpec& spec, const device::Devices& devices) {
  if (options.page_size == 0) options.page_size = common_page_size(devices);
  // A device that names no types keeps no KV itself: the host does, in the activation type.
  const auto refuses_own = [&](const auto& d) {
    const auto& bits = d->caps().kv_types.bits;
    const bool any = std::any_of(std::begin(bits), std::end(bits), [](std::uint64_t b) { return b != 0; });
    return any && !d->takes_kv_type(devices[0]->activation_type());
  };
  if (options.kv_type == DType::kNone && std::any_of(devices.begin(), devices.end(), refuses_own)) {
    options.kv_type = DType::kF16;
  }
  options = resolved(std::move(options), spec, devices[0]->activation_type());
  if (spec.context_is_hard && options.context > spec.max_context) {
    throw Error(ErrorCode::kCapacity,
                fmt::format("a context of {} is more than the {} positions that the model has", options.context,
                            spec.max_context),
                "--ctx", fmt::format("use --ctx {} or less", spec.max_context));
  }
  for (const auto& device : devices) {
    const std::uint32_t most = device->caps().max_tokens;
    if (most != 0) options.max_step_tokens = std::min(options.max_step_tokens, most);
  }
  check_kv_type(options.kv_type, spec);
  return options;
}

std::vector<device::Fallback> LoadedModel::fallbacks() {
  std::vector<device::Fallback> all;
  for (device::Executor* one : executors()) {
    for (device::Fallback& entry : one->ledger().entries()) all.push_back(std::move(entry));
  }
  return all;
}

std::vector<device::KernelUse> LoadedModel::kernels() {
  std::vector<device::KernelUse> all;
  for (device::Executor* one : executors()) {
    for (device::KernelUse& use : one->ledger().kernels()) all.push_back(std::move(use));
  }
  return all;
}

std::unique_ptr<LoadedModel> load(const ModelFile& file, std::shared_ptr<device::Device> chosen,
                                  std::shared_ptr<device::Device> reference, LoadOptions options) {
  return load(file, {DeviceChoice{std::move(chosen), std::nullopt}}, std::move(reference), std::move(options));
}

std::unique_ptr<LoadedModel> load(const ModelFile& file, const std::vector<DeviceChoice>& choices,
                                  std::shared_ptr<device::Device> reference, LoadOptions options) {
  device::Devices devices;
  for (const DeviceChoice& choice : choices) devices.push_back(choice.device);
  options = resolve(std::move(options), file.spec(), devices);
  return std::make_unique<Decoder>(file, place(file, choices, options), std::move(reference), options);
}

}  // namespace backplane::models
