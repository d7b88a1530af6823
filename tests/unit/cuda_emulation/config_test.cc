// What the environment asks of the emulation.
#include <cstdlib>

#include "tests/unit/cuda_emulation/emulation.h"

namespace {

/// An environment variable, for as long as it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

class Configuration : public EmulationTest {};

TEST_F(Configuration, ComesFromTheEnvironment) {
  const Variable all[] = {
      {"CUDA_EMULATION_DEVICES", "3"},         {"CUDA_EMULATION_MEMORY_MB", "64"}, {"CUDA_EMULATION_ARCH", "90"},
      {"CUDA_EMULATION_PROCESSORS", "5"},      {"CUDA_EMULATION_ORDER", "7"},      {"CUDA_EMULATION_THREADS", "2"},
      {"CUDA_EMULATION_STREAMS", "immediate"}, {"CUDA_EMULATION_KERNELS", "skip"}, {"CUDA_EMULATION_COUNT", "1"}};
  const cuda_emulation::Config config = cuda_emulation::config_from_environment();
  EXPECT_EQ(config.devices, 3);
  EXPECT_EQ(config.memory, 64u << 20);
  EXPECT_EQ(config.major, 9);
  EXPECT_EQ(config.minor, 0);
  EXPECT_EQ(config.processors, 5);
  EXPECT_EQ(config.threads, 2);
  EXPECT_EQ(config.order, cuda_emulation::Order::kShuffled);
  EXPECT_EQ(config.seed, 7u);
  EXPECT_FALSE(config.deferred);
  EXPECT_FALSE(config.run_kernels);
  EXPECT_TRUE(config.count_accesses);
  const Variable order("CUDA_EMULATION_ORDER", "descending");
  EXPECT_EQ(cuda_emulation::config_from_environment().order, cuda_emulation::Order::kDescending);
}

TEST_F(Configuration, IsWhatADeviceSaysOfItself) {
  cuda_emulation::Config config;
  config.devices = 2;
  config.memory = 3 << 20;
  config.major = 9;
  config.processors = 5;
  use(config);
  cudaDeviceProp properties{};
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 1), cudaSuccess);
  EXPECT_EQ(properties.totalGlobalMem, std::size_t{3} << 20);
  EXPECT_EQ(properties.major, 9);
  EXPECT_EQ(properties.multiProcessorCount, 5);
  int value = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
  EXPECT_EQ(value, 9);
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 2), cudaErrorInvalidDevice);
}

TEST_F(Configuration, ImmediateStreamsDontWaitToBeAsked) {
  cuda_emulation::Config config;
  config.deferred = false;
  use(config);
  float* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, 32 * sizeof(float)), cudaSuccess);
  ASSERT_EQ(launch(1, 32, fill_value, pinned, 2.0f), cudaSuccess);
  EXPECT_EQ(pinned[31], 2.0f);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(Configuration, NoDevicesAreReportedAsSuch) {
  cuda_emulation::Config config;
  config.devices = 0;
  use(config);
  int count = -1;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorNoDevice);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorNoDevice);
  EXPECT_EQ(launch(1, 32, fill_value, nullptr, 2.0f), cudaErrorNoDevice);
}

}  // namespace
