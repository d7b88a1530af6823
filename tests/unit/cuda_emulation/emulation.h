// What the tests of the emulation share: a device in a known state, arrays on it, and launches that must be accepted.
#pragma once

#include <cuda_emulation/control.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/unit/cuda_emulation/kernels.h"

/// Device memory that holds `count` elements and knows how to get them back, after waiting for the device.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    EXPECT_EQ(cudaMalloc(&data_, count * sizeof(T)), cudaSuccess);
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* get() const { return data_; }
  std::vector<T> values() const {
    std::vector<T> result(count_);
    EXPECT_EQ(cudaMemcpy(result.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return result;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

template <class... P, class... A>
cudaError_t launch_on(cudaStream_t stream, dim3 grid, dim3 block, void (*kernel)(P...), A&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, std::forward<A>(arguments)...);
}
template <class... P, class... A>
cudaError_t launch(dim3 grid, dim3 block, void (*kernel)(P...), A&&... arguments) {
  return launch_on(nullptr, grid, block, kernel, std::forward<A>(arguments)...);
}

/// One device as the defaults have it, whatever the environment says.
class EmulationTest : public testing::Test {
 protected:
  void SetUp() override { use({}); }
  void TearDown() override { use({}); }
  static void use(const cuda_emulation::Config& config) {
    cuda_emulation::configure(config);
    cudaGetLastError();
  }
  static void use_order(cuda_emulation::Order order, std::uint64_t seed = 1) {
    cuda_emulation::Config config;
    config.order = order;
    config.seed = seed;
    use(config);
  }
  static void use_counting() {
    cuda_emulation::Config config;
    config.count_accesses = true;
    use(config);
  }
};
