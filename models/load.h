// From a path to a model on a device: what the program and the tests call.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "core/device/executor.h"
#include "core/engine/model.h"
#include "core/formats/container.h"
#include "models/decoder_spec.h"

namespace backplane::models {

struct LoadOptions {
  // Tokens a sequence may have; 0: the model's own. More than that works, worse, unless spec().context_is_hard.
  std::uint32_t context = 0;
  std::uint32_t max_sequences = 1;  // at once
  // Tokens that all of them together may have in the KV cache; 0: a whole context each. With fewer, sequences wait for
  // one another, or are computed again.
  std::uint64_t kv_tokens = 0;
  std::uint32_t max_step_tokens = 512;
  std::uint32_t page_size = 0;   // tokens of a KV page; 0: what the device likes best, else 16
  DType kv_type = DType::kNone;  // kNone: the device's activation type where it takes that, else F16
  device::ExecutorOptions executor;
};

// Bytes a load will take. Weights used in place from the mapped file are counted: they become resident.
struct MemoryEstimate {
  std::uint64_t weights = 0;
  std::uint64_t kv = 0;
  std::uint64_t workspace = 0;  // activations, logits, staging
  std::uint64_t total() const { return weights + kv + workspace; }
};

// A file or folder that was understood as a model, nothing loaded yet. Opens no device. Immutable.
class ModelFile {
 public:
  // Throws Error{kBadFile}: not a container, an unknown architecture, a feature we don't support, a missing or
  // misshapen tensor.
  explicit ModelFile(const std::filesystem::path& path);
  explicit ModelFile(std::shared_ptr<const formats::Container> container);

  const formats::Container& container() const { return *container_; }
  std::shared_ptr<const formats::Container> shared_container() const { return container_; }
  const DecoderSpec& spec() const { return spec_; }
  std::uint64_t parameters() const;
  // The same without its later layers, for trying how fast it is; what it writes is nonsense. 1 <= layers.
  ModelFile first_layers(std::uint32_t layers) const;

  // activation: the type a device computes in.
  MemoryEstimate estimate(const LoadOptions& options, DType activation = DType::kF32) const;
  // On an open device: matrices of a type that it doesn't take are converted to one that it does, and grow.
  MemoryEstimate estimate(const LoadOptions& options, const device::Device& device) const;
  // The largest context whose estimate fits into `bytes`; nothing when not even one page does.
  std::optional<std::uint32_t> largest_context(LoadOptions options, std::uint64_t bytes,
                                               DType activation = DType::kF32) const;
  // The most KV tokens whose estimate on this device fits into `bytes`, at most a whole context for each sequence; 0
  // when not even one page does.
  std::uint64_t most_kv_tokens(LoadOptions options, std::uint64_t bytes, const device::Device& device) const;

 private:
  std::shared_ptr<const formats::Container> container_;
  DecoderSpec spec_;
};

// Devices in the order of the layers they hold, and the one each layer is on.
struct DevicePlan {
  device::Devices devices;
  std::vector<device::Slot> homes;  // by layer
};

// A device that the user named, and how many layers it is to hold; nothing: as many as fit.
struct DeviceChoice {
  std::shared_ptr<device::Device> device;
  std::optional<std::uint32_t> layers;
};

// Puts layers on the first device until its free memory is used up or it has the number asked for, the next ones on the
// second, and so on. Throws Error: kCapacity when they don't fit, naming the largest context that does where there is
// one device; kUsage when numbers were asked for that don't give all layers.
DevicePlan place(const ModelFile& file, const std::vector<DeviceChoice>& choices, const LoadOptions& options);

// Bytes free on these devices together; those that share the host's memory count once. UINT64_MAX: one doesn't say.
std::uint64_t free_bytes(const std::vector<DeviceChoice>& choices);

// A loaded model and the executors it runs on: one, or one for each phase.
class LoadedModel : public engine::Model {
 public:
  virtual std::vector<device::Executor*> executors() = 0;
  virtual DType kv_type() const = 0;

  device::Executor& executor() { return *executors().front(); }
  std::vector<device::Fallback> fallbacks();  // of all executors' ledgers
  std::vector<device::KernelUse> kernels();   // likewise
};

// Throws Error: kCapacity when the device's free memory can't hold it (naming the largest context that fits), kDevice
// when an op runs nowhere. `reference` is the cpu plugin's device (may be `chosen` itself).
std::unique_ptr<LoadedModel> load(const ModelFile& file, std::shared_ptr<device::Device> chosen,
                                  std::shared_ptr<device::Device> reference, LoadOptions options);
// The same with layers on several devices, see place().
std::unique_ptr<LoadedModel> load(const ModelFile& file, const std::vector<DeviceChoice>& choices,
                                  std::shared_ptr<device::Device> reference, LoadOptions options);

// What is 0 or kNone in `options` filled in for these devices: context, page size, KV type, step size. Throws as load
// does.
LoadOptions resolve(LoadOptions options, const DecoderSpec& spec, const device::Devices& devices);

}  // namespace backplane::models
