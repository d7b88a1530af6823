#include "tools/loaded_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <system_error>

#include "core/base/log.h"
#include "core/formats/gguf.h"
#include "core/formats/hf_folder.h"
#include "models/failover_model.h"
#include "models/phase_model.h"
#include "tools/memory_report.h"
#include "tools/model_source.h"
#include "tools/progress.h"
#include "tools/shadow_report.h"
#include "tools/signals.h"
#include "tools/tuning/tuning.h"

namespace backplane::tools {
namespace {

// Whether there is a tokenizer at all: one that is there has to be readable, even where ids alone are used.
bool has_tokenizer(const formats::Container& container) {
  if (const auto* gguf = dynamic_cast<const formats::Gguf*>(&container)) {
    return gguf->has("tokenizer.ggml.model") || gguf->has("tokenizer.ggml.tokens");
  }
  std::error_code ignored;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "encoder.json", "vocab.json"}) {
    if (std::filesystem::exists(container.path() / name, ignored)) return true;
  }
  return false;
}

formats::TokenizerBundle tokenizer_of(const formats::Container& container) {
  if (const auto* gguf = dynamic_cast<const formats::Gguf*>(&container)) return formats::tokenizer_from_gguf(*gguf);
  return formats::load_tokenizer(container.path());
}

}  // namespace

const formats::TokenizerBundle& OpenedModel::need_tokenizer() const {
  if (tokenizer) return *tokenizer;
  throw Error(ErrorCode::kBadFile, "the model has no tokenizer", file.container().path().string(),
              "give token ids with --prompt-ids");
}

std::shared_ptr<const text::Tokenizer> OpenedModel::tokenizer_or_null() const {
  return tokenizer ? tokenizer->tokenizer : nullptr;
}

std::vector<TokenId> OpenedModel::end_ids() const {
  std::vector<TokenId> ids;
  if (tokenizer) ids = tokenizer->tokenizer->special().end_of_generation;
  if (const auto* folder = dynamic_cast<const formats::HuggingFaceFolder*>(&file.container())) {
    for (const std::uint64_t id : folder->eos_token_ids()) {
      if (id <= INT32_MAX) ids.push_back(static_cast<TokenId>(id));
    }
  }
  std::erase_if(ids, [&](TokenId id) { return id < 0 || static_cast<std::uint32_t>(id) >= file.spec().vocab_size; });
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::uint32_t OpenedModel::context_for(std::uint64_t tokens, bool beyond) const {
  constexpr std::uint64_t kLeast = 16, kMost = UINT32_MAX;
  const std::uint64_t own = file.spec().max_context;
  const bool capped = !beyond || file.spec().context_is_hard;
  const std::uint64_t wanted = std::max(tokens, kLeast);
  return static_cast<std::uint32_t>(std::min(kMost, capped ? std::min(wanted, own) : wanted));
}

OpenedModel open_model(const std::string& name, const DeviceOptions& options) {
  if (options.verbose) set_log_level(LogLevel::kInfo);
  OpenedModel opened{.file = models::ModelFile(resolve_model(name, !options.no_progress)), .tokenizer = std::nullopt};
  if (has_tokenizer(opened.file.container())) opened.tokenizer = tokenizer_of(opened.file.container());
  return opened;
}

namespace {

PhaseDevices open_tuned(const plugins::Registry& registry, const DeviceOptions& given, const models::ModelFile& file,
                        const models::LoadOptions& load) {
  DeviceOptions options = given;
  if (!options.prefill_device || !options.decode_device) options.device = device_or_default(registry, options);
  const tuning::Tuned tuned = tuning::tune(registry, options.device.value_or(""), options, file, load);
  if (options.verbose) std::fprintf(stderr, "backplane: threads and kernels: %s\n", tuned.why.c_str());
  if (tuned.setting.threads != 0) options.threads = tuned.setting.threads;
  return open_devices(registry, options, tuned.setting.options);
}

std::unique_ptr<models::LoadedModel> load_on(const PhaseDevices& devices, const models::ModelFile& file,
                                             models::LoadOptions load) {
  const Devices& prefill = devices.prefill;
  if (!devices.decode) return models::load(file, prefill.chosen, prefill.reference, load);
  const Devices& decode = *devices.decode;
  load = models::resolve(load, file.spec(), devices.all());
  return std::make_unique<models::PhaseModel>(models::load(file, prefill.chosen, prefill.reference, load),
                                              models::load(file, decode.chosen, decode.reference, load));
}

// A shadow that a device fails at is dropped; that it can't be had for another reason is an error.
std::unique_ptr<models::LoadedModel> load_with_shadow(LoadedModel& loaded, const models::ModelFile& file,
                                                      const models::LoadOptions& load, DType kv_type) {
  std::unique_ptr<models::LoadedModel> primary = load_on(loaded.devices, file, load);
  if (!loaded.devices.shadow) return primary;
  const Devices& devices = *loaded.devices.shadow;
  models::LoadOptions again = load;
  again.kv_type = kv_type;
  std::unique_ptr<models::LoadedModel> shadow;
  try {
    shadow = models::load(file, devices.chosen, devices.reference, again);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDevice) throw;
    loaded.shadow->record->add_failure(error.what(), true);
    return primary;
  }
  return std::make_unique<models::ShadowModel>(
      std::move(primary), std::move(shadow),
      models::ShadowOptions{.rate = loaded.shadow->rate, .record = loaded.shadow->record});
}

void load_with_failover(LoadedModel& loaded, const models::ModelFile& file, models::LoadOptions load) {
  const DType kv_type = load.kv_type;  // each may have its own: nothing is copied, or it is converted
  if (!loaded.devices.failover) {
    loaded.model = load_with_shadow(loaded, file, load, kv_type);
    return;
  }
  load = models::resolve(load, file.spec(), loaded.devices.all());
  models::LoadOptions again = load;
  again.kv_type = kv_type;
  again.executor.progress = [](std::uint64_t, std::uint64_t) { CatchInterrupts::check("loading the model again"); };
  const Devices& failover = *loaded.devices.failover;
  models::Backup backup{failover.name(), [file, failover, again] {
                          return models::load(file, failover.chosen, failover.reference, again);
                        }};
  try {
    loaded.model = std::make_unique<models::FailoverModel>(load_with_shadow(loaded, file, load, kv_type), backup);
  } catch (const DeviceLost& loss) {
    log(LogLevel::kWarning, "failover", "{}; loading on {} instead", loss.cause(), failover.name());
    loaded.model = backup.load();
    loaded.loaded_elsewhere = true;
  }
}

bool in_host_memory(const Devices& devices) { return (devices.first().caps().flags & BP_CAP_UNIFIED) != 0; }

bool share_memory(const Devices& a, const Devices& b) {
  const auto shares = [&](const models::DeviceChoice& choice) {
    return std::any_of(b.chosen.begin(), b.chosen.end(), [&](const models::DeviceChoice& other) {
      return choice.device->shares_memory_with(*other.device);
    });
  };
  return std::any_of(a.chosen.begin(), a.chosen.end(), shares);
}

// What the devices have free for one of `models` that use it.
std::uint64_t usable_bytes(const Devices& devices, unsigned models) {
  const std::uint64_t free = models::free_bytes(devices.chosen);
  if (free == UINT64_MAX) return free;
  return (in_host_memory(devices) ? free / 2 : free / 10 * 9) / models;
}

// As LoadOptions::kv_tokens.
std::uint64_t kv_tokens_that_fit(const models::ModelFile& file, const models::LoadOptions& load,
                                 const PhaseDevices& devices) {
  const std::uint64_t context = load.context != 0 ? load.context : file.spec().max_context;
  std::vector<const Devices*> loads{&devices.prefill};  // of the model
  if (devices.decode) loads.push_back(&*devices.decode);
  if (devices.shadow) loads.push_back(&*devices.shadow);
  std::uint64_t fits = UINT64_MAX;
  for (const Devices* each : loads) {
    const auto sharing =
        std::count_if(loads.begin(), loads.end(), [each](const Devices* other) { return share_memory(*each, *other); });
    const std::uint64_t bytes = usable_bytes(*each, static_cast<unsigned>(sharing));
    if (bytes != UINT64_MAX) fits = std::min(fits, file.most_kv_tokens(load, bytes, each->first()));
  }
  if (fits == 0) return context;  // the load tells what is too much
  return fits < context * load.max_sequences ? fits : 0;
}

}  // namespace

std::string LoadedModel::device_now() const {
  const auto* failover = dynamic_cast<const models::FailoverModel*>(model.get());
  return loaded_elsewhere || (failover && failover->failed_over()) ? devices.failover->name() : device();
}

bool LoadedModel::lost() const {
  if (const auto* failover = dynamic_cast<const models::FailoverModel*>(model.get())) {
    if (failover->given_up()) return true;
    if (!failover->failed_over()) return false;
  }
  for (device::Executor* executor : model->executors()) {
    for (const auto& device : executor->devices()) {
      if (device->lost()) return true;
    }
  }
  return false;
}

LoadedModel load_model(const OpenedModel& opened, const DeviceOptions& options, models::LoadOptions load, KvSize size) {
  const auto start = std::chrono::steady_clock::now();
  const plugins::Registry registry(options.plugins.search());
  LoadedModel loaded;
  load.context = load.context != 0 ? load.context : options.context.value_or(0);
  load.kv_type = options.kv();
  loaded.devices = open_tuned(registry, options, opened.file, load);
  if (size == KvSize::kWhatFits && load.kv_tokens == 0) {
    load.kv_tokens = kv_tokens_that_fit(opened.file, load, loaded.devices);
  }
  if (loaded.devices.shadow) {
    loaded.shadow = {loaded.devices.shadow->name(), options.checked_shadow_rate(),
                     std::make_shared<models::ShadowRecord>()};
    const models::LoadOptions alike = models::resolve(load, opened.file.spec(), loaded.devices.with_shadow());
    load.page_size = alike.page_size;
    load.max_step_tokens = alike.max_step_tokens;
  }
  loaded.memory = opened.file.estimate(load, loaded.devices.prefill.first());
  loaded.context = load.context != 0 ? load.context : opened.file.spec().max_context;
  loaded.kv_tokens = load.kv_tokens != 0 ? load.kv_tokens : std::uint64_t{loaded.context} * load.max_sequences;
  if (options.verbose || stderr_is_terminal()) {
    const std::string text = describe_memory(loaded.memory, loaded.kv_tokens);
    std::fprintf(stderr, "backplane: %s on %s: %s\n", opened.file.container().path().filename().c_str(),
                 loaded.device().c_str(), text.c_str());
  }
  if (loaded.context > opened.file.spec().max_context && !opened.file.spec().context_is_hard) {
    log(LogLevel::kWarning, "run", "a context of {} is more than the {} tokens that the model was made for",
        loaded.context, opened.file.spec().max_context);
  }
  ProgressBar bar("loading", !options.no_progress, ProgressUnit::kCount);
  load.executor.policy = options.policy();
  load.executor.progress = [&](std::uint64_t done, std::uint64_t total) {
    CatchInterrupts::check("loading the model");
    bar.update(done, total);
  };
  load_with_failover(loaded, opened.file, load);
  loaded.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return loaded;
}

void print_ledger(LoadedModel& loaded) {
  for (const device::Fallback& entry : loaded.model->fallbacks()) {
    const std::string line =
        fmt::format("backplane: fell back: {} x {} to {} ({}), {} staged, {:.3f} s: {}", entry.op, entry.count,
                    entry.device, entry.shape, format_bytes(entry.bytes_staged), entry.seconds, entry.reason);
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  for (const device::KernelUse& use : loaded.model->kernels()) {
    const std::string tokens = use.fewest_tokens == use.most_tokens
                                   ? fmt::format("{}", use.most_tokens)
                                   : fmt::format("{} to {}", use.fewest_tokens, use.most_tokens);
    const std::string line = fmt::format("backplane: kernel: {} x {} on {} ({}, tokens: {}): {}", use.op, use.count,
                                         use.device, use.shape, tokens, use.kernel);
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  if (loaded.shadow) print_shadow(*loaded.shadow);
}

}  // namespace backplane::tools
