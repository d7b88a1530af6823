// Kernel launches with the toolkit's signatures, but keeping the types of the parameters, so that their values can be
// copied when the launch is made (or captured).
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cuda_emulation {

/// Makes what is called once for each CUDA thread, with copies of the parameters inside. Borrowed for one call.
struct BodyMaker {
  std::function<void()> (*make)(void* state);
  void* state;
};

/// Checks a launch and puts it into its stream, or its capture. Nothing is made of a kernel that doesn't run
/// (Config::run_kernels): then a launch costs little beside what the caller does.
cudaError_t launch(const char* call, const cudaLaunchConfig_t& config, const void* kernel, const BodyMaker& body);

template <class Make>
cudaError_t launch(const char* call, const cudaLaunchConfig_t& config, const void* kernel, Make make) {
  return launch(call, config, kernel,
                BodyMaker{[](void* state) -> std::function<void()> { return (*static_cast<Make*>(state))(); }, &make});
}

template <class... P>
std::function<void()> kernel_body(void (*kernel)(P...), std::tuple<std::remove_cv_t<P>...> arguments) {
  return [kernel, arguments = std::move(arguments)] { std::apply(kernel, arguments); };
}

}  // namespace cuda_emulation

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... arguments) {
  return cuda_emulation::launch("cudaLaunchKernelExC", *config, reinterpret_cast<const void*>(kernel), [&] {
    return cuda_emulation::kernel_body(kernel, {static_cast<P>(std::forward<A>(arguments))...});
  });
}

template <class... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments, std::size_t shared = 0,
                             cudaStream_t stream = nullptr) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  return cuda_emulation::launch("cudaLaunchKernel", config, reinterpret_cast<const void*>(kernel), [&] {
    [[maybe_unused]] void** next = arguments;
    // Braces evaluate from left to right, so that each parameter takes its own pointer.
    std::tuple<std::remove_cv_t<P>...> values{*static_cast<std::remove_cv_t<P>*>(*next++)...};
    return cuda_emulation::kernel_body(kernel, std::move(values));
  });
}

template <class F>
cudaError_t cudaFuncSetAttribute(F* kernel, cudaFuncAttribute attribute, int value) {
  return ::cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <class F>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, F* kernel) {
  return ::cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
