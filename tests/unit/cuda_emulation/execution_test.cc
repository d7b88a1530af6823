#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/cuda_emulation/kernels.h"

TEST(Execution, VectorsAreAdded) {
  constexpr int kCount = 1000;
  float *a = nullptr, *b = nullptr, *sum = nullptr;
  ASSERT_EQ(cudaMalloc(&a, kCount * sizeof(float)), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&b, kCount * sizeof(float)), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&sum, kCount * sizeof(float)), cudaSuccess);
  std::vector<float> host(kCount, 2.0f), result(kCount);
  ASSERT_EQ(cudaMemcpy(a, host.data(), kCount * sizeof(float), cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(b, host.data(), kCount * sizeof(float), cudaMemcpyHostToDevice), cudaSuccess);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(8);
  config.blockDim = dim3(128);
  ASSERT_EQ(cudaLaunchKernelEx(&config, add_vectors, a, b, sum, kCount), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(result.data(), sum, kCount * sizeof(float), cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(result, std::vector<float>(kCount, 4.0f));
  for (float* p : {a, b, sum}) EXPECT_EQ(cudaFree(p), cudaSuccess);
}
