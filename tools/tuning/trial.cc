#include "tools/tuning/trial.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/base/processors.h"
#include "core/engine/engine.h"
#include "plugins/host/host_table.h"
#include "tools/lab/setup.h"
#include "tools/runtime.h"
#include "tools/signals.h"

namespace backplane::tuning {
namespace {

constexpr std::uint32_t kPrompt = 32;  // enough that arithmetic, not memory, sets the speed
constexpr std::uint32_t kReply = 4;
constexpr std::uint64_t kLayerBytes = 64ull << 20;

}  // namespace

std::vector<unsigned> fewer_threads(unsigned processors, unsigned cores) {
  std::vector<unsigned> numbers;
  const unsigned half = cores > 0 && cores < processors ? cores / 2 : processors / 2;
  for (const unsigned number : {cores, half}) {
    if (number > 0 && number < processors && std::count(numbers.begin(), numbers.end(), number) == 0) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

unsigned usable_cores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 0;
  std::set<std::string> cores;  // each by the list of its threads
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &set)) continue;
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(processor) + "/topology/thread_siblings_list");
    std::string threads;
    if (!std::getline(file, threads)) return 0;
    cores.insert(threads);
  }
  return static_cast<unsigned>(cores.size());
}

std::uint32_t trial_layers(const models::ModelFile& file) {
  std::uint64_t bytes = 0;
  for (const formats::TensorInfo& tensor : file.container().tensors()) bytes += tensor.data.size();
  const std::uint64_t layers = std::max<std::size_t>(1, file.spec().layers.size());
  const std::uint64_t each = std::max<std::uint64_t>(1, bytes / layers);
  return static_cast<std::uint32_t>(std::min(layers, (kLayerBytes + each - 1) / each));
}

struct Trial::Opened {
  tools::Devices devices;  // outlive the model
  std::unique_ptr<models::LoadedModel> model;
  std::vector<TokenId> prompt;
};

Trial::Trial(const plugins::Registry& registry, const plugins::DeviceRef& device, const std::vector<std::string>& what,
             const models::ModelFile& file, const models::LoadOptions& given) {
  const models::ModelFile part = file.first_layers(trial_layers(file));
  models::LoadOptions load = given;
  load.context = std::min(kPrompt + kReply, file.spec().max_context);
  load.kv_tokens = 0;
  load.max_sequences = 1;
  const std::uint32_t prompt = load.context - std::min(load.context - 1, kReply);
  const auto open = [&](const std::string& options) {
    auto opened = std::make_unique<Opened>();
    opened->devices = tools::open_list(registry, device.name, {options});
    for (const auto& other : opened_) {
      const std::string_view known = other->devices.first().caps().description;
      if (known == opened->devices.first().caps().description) return;
    }
    opened->model = models::load(part, opened->devices.chosen, opened->devices.reference, load);
    opened->prompt = lab::Prompts(nullptr, file.spec().vocab_size, 1).ids(prompt);
    settings_.push_back({0, options});
    opened_of_.push_back(opened_.size());
    opened_.push_back(std::move(opened));
  };
  open("");
  for (const std::string& each : what) {
    if (each == "threads") continue;
    try {
      open(each);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDevice) throw;  // not on this machine
    }
  }
  if (std::count(what.begin(), what.end(), "threads") == 0) return;
  for (const unsigned threads : fewer_threads(plugins::host_threads(), usable_cores())) {
    settings_.push_back({threads, ""});
    opened_of_.push_back(0);
  }
}

Trial::~Trial() { plugins::host_pool().limit(0); }

Sample Trial::measure(std::size_t setting) {
  Opened& opened = *opened_[opened_of_[setting]];
  plugins::host_pool().limit(settings_[setting].threads);
  engine::Engine engine(*opened.model, lab::measuring(1, lab::measure_room(*opened.model)));
  engine.submit(lab::greedy_request(opened.prompt, kReply));
  Sample sample;
  while (!engine.idle()) {
    tools::CatchInterrupts::check("trying settings");
    const std::uint64_t tokens_before = engine.steps().steps_run();
    const auto start = std::chrono::steady_clock::now();
    const std::vector<engine::Event> events = engine.step();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (const engine::Event& event : events) {
      if (event.error) throw *event.error;
    }
    (tokens_before == 0 ? sample.prefill : sample.decode) += seconds;
  }
  return sample;
}

}  // namespace backplane::tuning
