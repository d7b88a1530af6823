// The configuration and the shared state.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/cuda_emulation/counters.h"
#include "tests/cuda_emulation/include/cuda_emulation/access.h"
#include "tests/cuda_emulation/include/cuda_emulation/fault.h"
#include "tests/cuda_emulation/runtime.h"
#include "tests/cuda_emulation/stack.h"

namespace cuda_emulation {

namespace {

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void make_devices(State& shared) {
  shared.devices.clear();
  shared.devices.resize(static_cast<std::size_t>(shared.config.devices));
  for (int i = 0; i < shared.config.devices; ++i) {
    auto& device = shared.devices[static_cast<std::size_t>(i)];
    device.null_stream = std::make_shared<CUstream_st>();
    device.null_stream->device = i;
  }
}

}  // namespace

bool counting = false;

Config config_from_environment() {
  Config config;
  config.devices = static_cast<int>(number("CUDA_EMULATION_DEVICES", 1));
  config.memory = number("CUDA_EMULATION_MEMORY_MB", config.memory >> 20) << 20;
  const auto arch = static_cast<int>(number("CUDA_EMULATION_ARCH", 80));
  config.major = arch / 10;
  config.minor = arch % 10;
  config.processors = static_cast<int>(number("CUDA_EMULATION_PROCESSORS", 8));
  config.threads = static_cast<int>(number("CUDA_EMULATION_THREADS", 0));
  const char* order = std::getenv("CUDA_EMULATION_ORDER");
  if (order != nullptr) {
    const std::string_view name = order;
    config.order = name == "ascending"    ? Order::kAscending
                   : name == "descending" ? Order::kDescending
                                          : Order::kShuffled;
    if (config.order == Order::kShuffled) config.seed = number("CUDA_EMULATION_ORDER", 1);
  }
  const char* streams = std::getenv("CUDA_EMULATION_STREAMS");
  config.deferred = streams == nullptr || std::string_view(streams) != "immediate";
  const char* kernels = std::getenv("CUDA_EMULATION_KERNELS");
  config.run_kernels = kernels == nullptr || std::string_view(kernels) != "skip";
  const char* blas = std::getenv("CUDA_EMULATION_BLAS");
  if (blas != nullptr) config.blas = std::string_view(blas) == "missing" ? Blas::kMissing : Blas::kRefuses;
  config.count_accesses = number("CUDA_EMULATION_COUNT", 0) != 0;
  return config;
}

State& state() {
  static State* shared = [] {
    const Unchecked unchecked;  // that this comes before what other threads do with it is out of the checker's sight
    auto* made = new State;
    made->faults = {number("CUDA_EMULATION_LOSS_AT", 0), number("CUDA_EMULATION_OOM_AT", 0),
                    number("CUDA_EMULATION_LATE_AT", 0)};
    counting = made->config.count_accesses;
    if (counting) std::atexit([] { std::fputs(count_report().c_str(), stderr); });
    make_devices(*made);
    return made;
  }();
  return *shared;
}

bool is_faulty(const char* name) {
  const char* wanted = std::getenv("CUDA_EMULATION_FAULT");
  return wanted != nullptr && std::string_view(wanted) == name;
}

void configure(const Config& config) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  shared.config = config;
  shared.faults = {};
  shared.calls = shared.allocations = shared.launches = 0;
  shared.calls_by_name.clear();
  shared.copied.clear();
  shared.report.clear();
  shared.shared_limits.clear();
  counting = config.count_accesses;
  make_devices(shared);
  forget_counts();
  current_device() = 0;
}

void inject(const Faults& faults) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  shared.faults = faults;
  shared.calls = shared.allocations = shared.launches = 0;
}

std::uint64_t calls() {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  return shared.calls;
}

std::uint64_t calls(const std::string& name) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  std::uint64_t sum = 0;
  for (const auto& [known, count] : shared.calls_by_name) sum += known == name ? count : 0;
  return sum;
}

std::uint64_t copied(cudaMemcpyKind kind) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  const auto found = shared.copied.find(kind);
  return found == shared.copied.end() ? 0 : found->second;
}

std::string last_report() {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  return shared.report;
}

}  // namespace cuda_emulation
