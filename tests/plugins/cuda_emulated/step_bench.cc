// What a decode step costs the host with the CUDA backend: time, calls of the CUDA runtime, bytes copied. The GPU is
// emulated and its kernels do nothing, so what is measured is the core, the backend's host code and the emulation's own
// cost of a call, which a real driver's takes the place of; that is shown apart.
//   bench_cuda_step MODEL [SEQUENCES] [STEPS]
#include <cuda_emulation/control.h>
#include <cuda_emulation/launch.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/load.h"
#include "plugins/host/registry.h"

namespace {

using namespace backplane;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kContext = 512, kPage = 16, kWarmUp = 8;

double microseconds(Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

// A decode step of sequences that are all `position` tokens long already.
sched::Step decode_step(std::uint32_t sequences, std::uint32_t position) {
  sched::Step step;
  step.n_decode = sequences;
  step.page_size = kPage;
  step.max_pages = position / kPage + 1;
  step.max_q = 1;
  step.max_kv = position + 1;
  step.q_start.push_back(0);
  for (std::uint32_t b = 0; b < sequences; ++b) {
    const auto first = static_cast<std::int32_t>(b * (kContext / kPage));
    step.token.push_back(static_cast<TokenId>(b + 1));
    step.pos.push_back(static_cast<std::int32_t>(position));
    step.q_start.push_back(static_cast<std::int32_t>(b + 1));
    step.kv_len.push_back(static_cast<std::int32_t>(position + 1));
    for (std::uint32_t page = 0; page < step.max_pages; ++page) {
      step.page_table.push_back(first + static_cast<std::int32_t>(page));
    }
    const auto page = static_cast<std::int64_t>(step.page_table.back());
    step.slot.push_back(page * kPage + position % kPage);
    step.rope_row.push_back(0);
    step.out_row.push_back(static_cast<std::int32_t>(b));
  }
  return step;
}

struct Measured {
  double least = 0, median = 0;         // microseconds a step
  double calls = 0, launches = 0;       // a step
  double uploaded = 0, downloaded = 0;  // bytes a step
};

// How a step is run: its ops one by one, or recorded and launched; with its logits read, or left to the device with the
// next one begun before its tokens are known.
struct Way {
  const char* title;
  bool recorded, ahead;
};
constexpr Way kWays[] = {{"each op", false, false},
                         {"each op, ahead", false, true},
                         {"recorded", true, false},
                         {"recorded, ahead", true, true}};

void run_step(models::LoadedModel& model, const sched::Step& step, const Way& way, std::uint32_t number) {
  if (!way.ahead) {
    model.forward(step);
    return;
  }
  std::vector<std::int32_t> targets;
  for (std::uint32_t r = 0; number > 0 && r < step.rows(); ++r) targets.push_back(static_cast<std::int32_t>(r));
  model.begin_pick(step, targets);
  if (number != 0) model.end_pick();
}

Measured measure(models::LoadedModel& model, std::uint32_t sequences, std::uint32_t steps, const Way& way) {
  std::vector<sched::Step> all;
  for (std::uint32_t i = 0; i < kWarmUp + steps; ++i) {
    all.push_back(decode_step(sequences, kContext / 2 + i % (kContext / 2)));
  }
  std::vector<double> times;
  std::uint64_t calls = 0, launches = 0, up = 0, down = 0;
  for (std::uint32_t i = 0; i < kWarmUp + steps; ++i) {
    if (i == kWarmUp) {
      calls = cuda_emulation::calls();
      launches = cuda_emulation::calls("cudaLaunchKernelExC");
      up = cuda_emulation::copied(cudaMemcpyHostToDevice);
      down = cuda_emulation::copied(cudaMemcpyDeviceToHost);
    }
    const auto start = Clock::now();
    run_step(model, all[i], way, i);
    if (i >= kWarmUp) times.push_back(microseconds(Clock::now() - start));
  }
  std::sort(times.begin(), times.end());
  const auto each = [&](std::uint64_t after, std::uint64_t before) {
    return static_cast<double>(after - before) / steps;
  };
  Measured measured;
  measured.least = times.front();
  measured.median = times[times.size() / 2];
  measured.calls = each(cuda_emulation::calls(), calls);
  measured.launches = each(cuda_emulation::calls("cudaLaunchKernelExC"), launches);
  measured.uploaded = each(cuda_emulation::copied(cudaMemcpyHostToDevice), up);
  measured.downloaded = each(cuda_emulation::copied(cudaMemcpyDeviceToHost), down);
  return measured;
}

void nothing(int) {}

// What the emulation itself takes for a launch, in microseconds: a driver's own time, which is longer, takes its place.
double launch_cost() {
  constexpr int kLaunches = 20000;
  cudaLaunchConfig_t config{};
  config.gridDim = config.blockDim = dim3(1);
  if (cudaStreamCreateWithFlags(&config.stream, cudaStreamNonBlocking) != cudaSuccess) return 0;
  double least = 1e9;
  for (int turn = 0; turn < 5; ++turn) {
    const auto start = Clock::now();
    for (int i = 0; i < kLaunches; ++i) cudaLaunchKernelEx(&config, nothing, i);
    least = std::min(least, microseconds(Clock::now() - start) / kLaunches);
  }
  cudaStreamDestroy(config.stream);
  return least;
}

int bench(const std::string& path, std::uint32_t sequences, std::uint32_t steps) {
  cuda_emulation::Config config = cuda_emulation::config_from_environment();
  config.run_kernels = false;
  cuda_emulation::configure(config);
  const plugins::Registry registry({{}, "", {CUDA_EMULATED_DIR, BACKPLANE_PLUGIN_OUTPUT_DIR}});
  const auto open = [&](const std::string& name) {
    const plugins::DeviceRef ref = registry.find_device(name);
    return device::Device::open({&ref.plugin->tables(), ref.plugin->name()}, ref.index);
  };
  const models::ModelFile file(path);
  const auto layers = static_cast<double>(file.spec().layers.size());
  std::printf("%.0f layers, %u sequences, %u steps; of each launch %.3f us are the emulation's own\n", layers,
              sequences, steps, launch_cost());
  std::printf("%-38s %9s %9s %9s %12s %9s %11s\n", "a step", "least us", "median us", "launches", "launch/layer",
              "bytes up", "bytes down");
  for (const char* name : {"cuda_emulated:0", "cuda_emulated:0-bf16"}) {
    for (const Way& way : kWays) {
      models::LoadOptions options;
      options.context = kContext;
      options.page_size = kPage;
      options.max_sequences = sequences;
      options.executor.policy = device::FallbackPolicy::kDeny;
      options.executor.capture = way.recorded;
      const auto model = models::load(file, open(name), open("cpu:f32"), options);
      if (way.ahead && !model->can_pick()) continue;
      const Measured m = measure(*model, sequences, steps, way);
      std::printf("%-38s %9.1f %9.1f %9.1f %12.2f %9.1f %11.1f\n", (std::string(name) + ", " + way.title).c_str(),
                  m.least, m.median, m.launches, m.launches / layers, m.uploaded, m.downloaded);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_cuda_step MODEL [SEQUENCES] [STEPS]\n");
    return 2;
  }
  const auto number = [&](int i, std::uint32_t otherwise) {
    return argc > i ? static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10)) : otherwise;
  };
  try {
    return bench(argv[1], std::max(1u, number(2, 1)), std::max(1u, number(3, 200)));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_cuda_step: %s\n", error.what());
    return 1;
  }
}
