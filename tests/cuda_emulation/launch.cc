// Kernel launches: what the driver would refuse, and the operation that runs the blocks.
#include <algorithm>
#include <cstdio>

#include "tests/cuda_emulation/block.h"
#include "tests/cuda_emulation/include/cuda_emulation/launch.h"
#include "tests/cuda_emulation/runtime.h"

namespace cuda_emulation {

namespace {

constexpr std::size_t kSharedByDefault = 48 << 10;

// The state's mutex must be held.
cudaError_t check(const State& shared, const cudaLaunchConfig_t& config, const void* kernel) {
  const dim3 grid = config.gridDim, block = config.blockDim;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.z > 64) return cudaErrorInvalidConfiguration;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return cudaErrorInvalidConfiguration;
  if (grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535) return cudaErrorInvalidConfiguration;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config.attrs[i];
    const auto size = attribute.val.clusterDim;
    const bool cluster = attribute.id == cudaLaunchAttributeClusterDimension && size.x * size.y * size.z > 1;
    const bool cooperative = attribute.id == cudaLaunchAttributeCooperative && attribute.val.cooperative != 0;
    if (cluster || cooperative) return cudaErrorNotSupported;  // blocks don't run together here
  }
  if (config.dynamicSmemBytes == 0) return cudaSuccess;
  const auto allowed = shared.shared_limits.find(kernel);
  const std::size_t limit =
      allowed == shared.shared_limits.end() ? kSharedByDefault : static_cast<std::size_t>(allowed->second);
  return config.dynamicSmemBytes > limit ? cudaErrorInvalidValue : cudaSuccess;
}

// Counts a launch that can be left out: it is right, its kernel doesn't run, and nobody waits for it to fail. Under one
// lock, so that who measures the host's side of launches measures little of this.
bool leave_out(const char* name, const cudaLaunchConfig_t& config, const void* kernel) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  const bool fails = shared.faults.late_error_at_launch != 0 || shared.faults.loss_at_call != 0;
  if (shared.config.run_kernels || fails || in_host_function()) return false;
  if (current_device() >= static_cast<int>(shared.devices.size())) return false;
  const Device& device = shared.devices[static_cast<std::size_t>(current_device())];
  const auto is_wanted = [&](const auto& stream) { return stream.get() == config.stream; };
  const auto stream = std::find_if(device.streams.begin(), device.streams.end(), is_wanted);
  if (stream == device.streams.end() || (*stream)->capture != nullptr || device.lost != cudaSuccess) return false;
  if (check(shared, config, kernel) != cudaSuccess) return false;
  ++shared.calls;
  count_call(shared, name);
  ++shared.launches;
  return true;
}

void run(const Launch& launch, int device) {
  State& shared = state();
  Config config;
  bool fails = false;
  {
    const std::lock_guard lock(shared.mutex);
    config = shared.config;
    fails = ++shared.launches == shared.faults.late_error_at_launch;
  }
  if (fails) return lose(device, cudaErrorIllegalAddress);
  if (!config.run_kernels) return;
  const std::string problem = run_blocks(launch, config);
  if (problem.empty()) return;
  std::fprintf(stderr, "cuda_emulation: %s\n", problem.c_str());
  {
    const std::lock_guard lock(shared.mutex);
    shared.report = problem;
  }
  lose(device, cudaErrorLaunchFailure);
}

}  // namespace

cudaError_t launch(const char* name, const cudaLaunchConfig_t& config, const void* kernel, const BodyMaker& body) {
  if (leave_out(name, config, kernel)) return cudaSuccess;
  const auto stream = find_stream(config.stream);
  const Call call(name, InCapture::kAllowed, stream ? stream->device : -1);
  if (call.refused()) return call.result();
  if (stream == nullptr || stream->device != current_device()) return call.result(cudaErrorInvalidResourceHandle);
  {
    State& shared = state();
    const std::lock_guard lock(shared.mutex);
    if (const cudaError_t status = check(shared, config, kernel); status != cudaSuccess) return call.result(status);
  }
  auto launch = std::make_shared<Launch>();
  launch->grid = config.gridDim;
  launch->block = config.blockDim;
  launch->dynamic_shared = config.dynamicSmemBytes;
  launch->body = body.make(body.state);
  launch->kernel = kernel;
  return call.result(enqueue(stream, [launch = std::move(launch), device = stream->device] { run(*launch, device); }));
}

int shared_limit(const std::string& name) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  for (const auto& [kernel, limit] : shared.shared_limits) {
    if (kernel_name(kernel).find(name) != std::string::npos) return limit;
  }
  return 0;
}

}  // namespace cuda_emulation

using namespace cuda_emulation;

extern "C" {

// Without the parameters' types there is no kernel to call: use the overloads of cuda_emulation/launch.h.
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, std::size_t, cudaStream_t) {
  return Call("cudaLaunchKernel").result(cudaErrorInvalidDeviceFunction);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**) {
  return Call("cudaLaunchKernelExC").result(cudaErrorInvalidDeviceFunction);
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  const Call call("cudaFuncSetAttribute");
  if (call.refused()) return call.result();
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return call.result(cudaSuccess);
  int limit = 0;
  cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, call.device());
  if (value < 0 || value > limit) return call.result(cudaErrorInvalidValue);
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  shared.shared_limits[kernel] = value;
  return call.result(cudaSuccess);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  const Call call("cudaFuncGetAttributes");
  if (call.refused()) return call.result();
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  const auto allowed = shared.shared_limits.find(kernel);
  attributes->maxDynamicSharedSizeBytes =
      allowed == shared.shared_limits.end() ? static_cast<int>(kSharedByDefault) : allowed->second;
  attributes->binaryVersion = attributes->ptxVersion = shared.config.major * 10 + shared.config.minor;
  return call.result(cudaSuccess);
}

}  // extern "C"
