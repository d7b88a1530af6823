// Memory, copies, several devices, and what goes wrong by order.
#include <cmath>

#include "tests/unit/cuda_emulation/emulation.h"

namespace {

class Memory : public EmulationTest {};

TEST_F(Memory, StartsAsNaN) {
  const DeviceArray<float> array(8);
  for (const float value : array.values()) EXPECT_TRUE(std::isnan(value));
}

TEST_F(Memory, CopiesCheckWhereTheyGo) {
  const DeviceArray<float> array(8);
  std::vector<float> host(16, 1.0f);
  const std::size_t bytes = 8 * sizeof(float);
  EXPECT_EQ(cudaMemcpy(array.get(), host.data(), bytes, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host.data(), array.get(), bytes, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host.data(), host.data() + 8, bytes, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(array.get(), host.data(), bytes + 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(array.get() + 4, host.data(), bytes, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(host.data(), 0, bytes), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(array.get(), 0, bytes + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(array.get(), host.data(), bytes, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(array.values(), std::vector<float>(8, 1.0f));
  EXPECT_EQ(cuda_emulation::copied(cudaMemcpyHostToDevice), bytes);
  EXPECT_EQ(cuda_emulation::copied(cudaMemcpyDeviceToHost), bytes);
}

TEST_F(Memory, IsLimited) {
  cuda_emulation::Config config;
  config.memory = 1 << 20;
  use(config);
  void *half = nullptr, *more = nullptr;
  ASSERT_EQ(cudaMalloc(&half, 1 << 19), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&more, (1 << 19) + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(more, nullptr);
  std::size_t free_bytes = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_bytes, &total), cudaSuccess);
  EXPECT_EQ(free_bytes, std::size_t{1} << 19);
  EXPECT_EQ(total, std::size_t{1} << 20);
  EXPECT_EQ(cudaFree(half), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&more, 1 << 20), cudaSuccess);
  EXPECT_EQ(cudaFree(more), cudaSuccess);
}

TEST_F(Memory, IsFreedOnceAndByTheRightCall) {
  void *device = nullptr, *pinned = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 64), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 64), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(device), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(static_cast<char*>(device) + 8), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFree(device), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
}

TEST_F(Memory, PointersAreKnown) {
  const DeviceArray<float> array(8);
  std::vector<float> host(8);
  cudaPointerAttributes found{};
  ASSERT_EQ(cudaPointerGetAttributes(&found, array.get() + 7), cudaSuccess);
  EXPECT_EQ(found.type, cudaMemoryTypeDevice);
  ASSERT_EQ(cudaPointerGetAttributes(&found, host.data()), cudaSuccess);
  EXPECT_EQ(found.type, cudaMemoryTypeUnregistered);
  ASSERT_EQ(cudaHostRegister(host.data(), 32, 0), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(host.data() + 4, 4, 0), cudaErrorHostMemoryAlreadyRegistered);
  ASSERT_EQ(cudaPointerGetAttributes(&found, host.data()), cudaSuccess);
  EXPECT_EQ(found.type, cudaMemoryTypeHost);
  EXPECT_EQ(cudaHostUnregister(host.data()), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(host.data()), cudaErrorHostMemoryNotRegistered);
}

TEST_F(Memory, RowsAreCopiedByTheirPitches) {
  const std::vector<float> host{1, 2, 0, 3, 4, 0};
  const DeviceArray<float> array(4);
  const std::size_t pitch = 3 * sizeof(float), width = 2 * sizeof(float);
  ASSERT_EQ(cudaMemcpy2DAsync(array.get(), width, host.data(), pitch, width, 2, cudaMemcpyHostToDevice, nullptr),
            cudaSuccess);
  EXPECT_EQ(array.values(), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(cudaMemcpy2DAsync(array.get(), width, host.data(), 4, width, 2, cudaMemcpyHostToDevice, nullptr),
            cudaErrorInvalidValue);
}

TEST_F(Memory, OfAStreamIsFreedInItsOrder) {
  float* memory = nullptr;
  ASSERT_EQ(cudaMallocAsync(&memory, 32 * sizeof(float), nullptr), cudaSuccess);
  ASSERT_EQ(launch(1, 32, fill_value, memory, 1.0f), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(memory, nullptr), cudaSuccess);
  std::size_t before = 0, after = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
  EXPECT_EQ(after - before, 32 * sizeof(float));
}

TEST_F(Memory, LaunchesAreCheckedAgainstTheDevice) {
  const DeviceArray<float> out(32);
  EXPECT_EQ(launch(1, 1025, fill_value, out.get(), 1.0f), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(0, 32, fill_value, out.get(), 1.0f), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1, 65536), 32, fill_value, out.get(), 1.0f), cudaErrorInvalidConfiguration);
  cudaLaunchConfig_t config{};
  config.gridDim = config.blockDim = dim3(1);
  config.dynamicSmemBytes = 64 << 10;
  EXPECT_EQ(cudaLaunchKernelEx(&config, fill_value, out.get(), 1.0f), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(fill_value, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10), cudaSuccess);
  EXPECT_EQ(cudaLaunchKernelEx(&config, fill_value, out.get(), 1.0f), cudaSuccess);
  EXPECT_EQ(cudaFuncSetAttribute(fill_value, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20),
            cudaErrorInvalidValue);
}

TEST_F(Memory, LaunchesThatCannotRunAreRefused) {
  const DeviceArray<float> out(32);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = config.blockDim = dim3(1);
  config.attrs = &attribute;
  config.numAttrs = 1;
  EXPECT_EQ(cudaLaunchKernelEx(&config, fill_value, out.get(), 1.0f), cudaErrorNotSupported);
  void* none[] = {nullptr};  // and of what types?
  const auto* untyped = reinterpret_cast<const void*>(fill_value);
  EXPECT_EQ(cudaLaunchKernel(untyped, dim3(1), dim3(1), none, 0, nullptr), cudaErrorInvalidDeviceFunction);
}

TEST_F(Memory, DevicesHaveTheirOwn) {
  cuda_emulation::Config config;
  config.devices = 2;
  config.memory = 1 << 20;
  use(config);
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  cudaStream_t first = nullptr;
  ASSERT_EQ(cudaStreamCreate(&first), cudaSuccess);
  void *on_first = nullptr, *on_second = nullptr;
  ASSERT_EQ(cudaMalloc(&on_first, 1 << 20), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&on_second, 1 << 20), cudaSuccess);
  EXPECT_EQ(launch_on(first, 1, 32, fill_value, static_cast<float*>(on_second), 1.0f), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaFree(on_first), cudaSuccess);  // from any device
  EXPECT_EQ(cudaFree(on_second), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(first), cudaSuccess);
}

class Faults : public EmulationTest {};

TEST_F(Faults, AnAllocationFailsByOrderAndTheNextDoesNot) {
  cuda_emulation::inject({.oom_at_allocation = 2});
  void *first = nullptr, *second = nullptr, *third = nullptr;
  EXPECT_EQ(cudaMalloc(&first, 64), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&second, 64), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&third, 64), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
  EXPECT_EQ(cudaFree(first), cudaSuccess);
  EXPECT_EQ(cudaFree(third), cudaSuccess);
}

TEST_F(Faults, ALostDeviceStaysLostAndTheOtherGoesOn) {
  cuda_emulation::Config config;
  config.devices = 2;
  use(config);
  cuda_emulation::inject({.loss_at_call = 2});
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 64), cudaSuccess);
  EXPECT_EQ(cudaMemset(memory, 0, 64), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);  // can't be cleared
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  const DeviceArray<float> out(32);
  ASSERT_EQ(launch(1, 32, fill_value, out.get(), 1.0f), cudaSuccess);
  EXPECT_EQ(out.values()[31], 1.0f);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);  // a context that works frees it
}

TEST_F(Faults, AKernelFailsLateAndTheNextWaitSaysSo) {
  const DeviceArray<float> out(32);
  cuda_emulation::inject({.late_error_at_launch = 2});
  EXPECT_EQ(launch(1, 32, fill_value, out.get(), 1.0f), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(launch(1, 32, fill_value, out.get(), 2.0f), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  EXPECT_EQ(launch(1, 32, fill_value, out.get(), 3.0f), cudaErrorIllegalAddress);
  use({});
  EXPECT_EQ(out.values()[0], 1.0f);
}

TEST_F(Faults, CallsAreCounted) {
  const DeviceArray<float> out(32);
  cuda_emulation::Config config;
  config.run_kernels = false;
  use(config);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(launch(1, 32, fill_value, out.get(), 1.0f), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cuda_emulation::calls(), 4u);
  EXPECT_EQ(cuda_emulation::calls("cudaLaunchKernelExC"), 3u);
  EXPECT_TRUE(std::isnan(out.values()[0]));  // recorded and counted, but not run
}

#if defined(__SANITIZE_ADDRESS__)
TEST_F(Faults, AddressSanitizerSeesOverrunsAndTheHostsHands) {
  const DeviceArray<float> out(32);
  EXPECT_DEATH(
      {
        launch(1, 1, write_past, out.get(), 32);
        cudaDeviceSynchronize();
      },
      "write_past");
  EXPECT_DEATH(out.get()[0] = 1.0f, "use-after-poison");
}
#endif

}  // namespace
