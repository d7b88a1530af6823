// The configuration and the shared state.
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "tests/cuda_emulation/counters.h"
#include "tests/cuda_emulation/include/cuda_emulation/access.h"
#include "tests/cuda_emulation/include/cuda_emulation/fault.h"
#include "tests/cuda_emulation/runtime.h"
#include "tests/cuda_emulation/stack.h"

namespace cuda_emulation {

namespace {

// Whoever sets a switch wants what it does: one that can't be followed ends the program.
[[noreturn]] void refuse(const char* name, const std::string& wanted) {
  std::fprintf(stderr, "cuda_emulation: %s is '%s' and has to be %s\n", name, std::getenv(name), wanted.c_str());
  std::_Exit(2);
}

std::uint64_t number(const char* name, std::uint64_t otherwise, std::uint64_t least = 0,
                     std::uint64_t most = UINT64_MAX) {
  const char* text = std::getenv(name);
  if (text == nullptr) return otherwise;
  const std::string_view digits = text;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc() && end == digits.data() + digits.size() && value >= least && value <= most) return value;
  refuse(name, "a number from " + std::to_string(least) + (most == UINT64_MAX ? "" : " to " + std::to_string(most)));
}

int small_number(const char* name, int otherwise, int least, int most) {
  return static_cast<int>(number(name, static_cast<std::uint64_t>(otherwise), static_cast<std::uint64_t>(least),
                                 static_cast<std::uint64_t>(most)));
}

// Which of these words a switch is; nothing where it isn't set.
std::optional<std::size_t> word(const char* name, std::initializer_list<std::string_view> words) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  std::string wanted;
  for (const std::string_view& each : words) {
    if (each == text) return static_cast<std::size_t>(&each - words.begin());
    wanted += (wanted.empty() ? "" : " or ") + std::string(each);
  }
  refuse(name, wanted);
}

Order order_from_environment(std::uint64_t& seed) {
  const char* text = std::getenv("CUDA_EMULATION_ORDER");
  if (text == nullptr || std::string_view(text) == "ascending") return Order::kAscending;
  if (std::string_view(text) == "descending") return Order::kDescending;
  seed = number("CUDA_EMULATION_ORDER", seed);
  return Order::kShuffled;
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
std::atomic<bool> fault_reached{false};

Config config_from_environment() {
  Config config;
  config.devices = small_number("CUDA_EMULATION_DEVICES", 1, 0, 64);
  config.memory = number("CUDA_EMULATION_MEMORY_MB", config.memory >> 20, 0, 1u << 30) << 20;
  const int arch = small_number("CUDA_EMULATION_ARCH", 80, 10, 999);
  config.major = arch / 10;
  config.minor = arch % 10;
  config.processors = small_number("CUDA_EMULATION_PROCESSORS", 8, 1, 1024);
  config.threads = small_number("CUDA_EMULATION_THREADS", 0, 0, 1024);
  config.order = order_from_environment(config.seed);
  config.deferred = !word("CUDA_EMULATION_STREAMS", {"immediate"});
  config.run_kernels = !word("CUDA_EMULATION_KERNELS", {"skip"});
  if (const auto blas = word("CUDA_EMULATION_BLAS", {"missing", "refuses"})) {
    config.blas = *blas == 0 ? Blas::kMissing : Blas::kRefuses;
  }
  config.count_accesses = number("CUDA_EMULATION_COUNT", 0, 0, 1) != 0;
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
  static const char* const wanted = [] {
    const char* text = std::getenv("CUDA_EMULATION_FAULT");
    if (text != nullptr) {
      std::atexit([] {
        if (!fault_reached) std::fputs("cuda_emulation: no code with the CUDA_EMULATION_FAULT was reached\n", stderr);
      });
    }
    return text;
  }();
  const bool is_wanted = wanted != nullptr && std::string_view(wanted) == name;
  if (is_wanted) fault_reached = true;
  return is_wanted;
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
