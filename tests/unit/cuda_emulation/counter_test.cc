// What accesses cost: sectors of 32 bytes in global memory, turns of 32 banks in shared memory.
#include "tests/unit/cuda_emulation/emulation.h"

namespace {

class Counters : public EmulationTest {
 protected:
  void SetUp() override { use_counting(); }
};

TEST_F(Counters, NeighborsShareSectors) {
  const DeviceArray<float> in(256), out(256);
  ASSERT_EQ(launch(2, 128, copy_strided, in.get(), out.get(), 1), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const auto counts = cuda_emulation::kernel_counts("copy_strided");
  for (const auto& global : {counts.global_loads, counts.global_stores}) {
    EXPECT_EQ(global.requests, 8u);
    EXPECT_EQ(global.bytes, 1024u);
    EXPECT_EQ(global.cost, 32u);
    EXPECT_EQ(global.minimum, 32u);
  }
}

TEST_F(Counters, StridesWasteSectors) {
  const DeviceArray<float> in(1024), out(1024);
  ASSERT_EQ(launch(1, 128, copy_strided, in.get(), out.get(), 8), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const auto counts = cuda_emulation::kernel_counts("copy_strided");
  EXPECT_EQ(counts.global_loads.cost, 128u);  // one for each element
  EXPECT_EQ(counts.global_loads.minimum, 16u);
  ASSERT_FALSE(counts.sites.empty());
  EXPECT_NE(counts.sites[0].file.find("kernels.cu"), std::string::npos);
  EXPECT_EQ(counts.sites[0].width, 4u);
  EXPECT_NE(cuda_emulation::count_report().find("kernels.cu"), std::string::npos);
}

TEST_F(Counters, AMisalignedRowTouchesOneSectorMore) {
  const DeviceArray<float> in(64), out(64);
  ASSERT_EQ(launch(1, 32, copy_strided, in.get() + 4, out.get() + 4, 1), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const auto counts = cuda_emulation::kernel_counts("copy_strided");
  EXPECT_EQ(counts.global_loads.cost, 5u);
  EXPECT_EQ(counts.global_loads.minimum, 4u);
}

TEST_F(Counters, PartsOfWarpsAndVectorsCountWhatTheyTouch) {
  const DeviceArray<float> a(100), b(100), sum(100);
  const DeviceArray<float4> in(32), out(32);
  ASSERT_EQ(launch(1, 128, add_vectors, a.get(), b.get(), sum.get(), 100), cudaSuccess);
  ASSERT_EQ(launch(1, 32, copy_vectors, in.get(), out.get()), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const auto sums = cuda_emulation::kernel_counts("add_vectors").global_stores;
  EXPECT_EQ(sums.requests, 4u);  // the last of four lanes
  EXPECT_EQ(sums.cost, 13u);
  EXPECT_EQ(sums.minimum, 13u);
  const auto vectors = cuda_emulation::kernel_counts("copy_vectors").global_loads;
  EXPECT_EQ(vectors.requests, 1u);
  EXPECT_EQ(vectors.cost, 16u);
  EXPECT_EQ(vectors.minimum, 16u);
}

TEST_F(Counters, ColumnsOfASquareTileCollideInOneBank) {
  const DeviceArray<float> in(std::vector<float>(1024, 1.0f)), out(1024);
  ASSERT_EQ(launch(1, 32, transpose_tile<32>, in.get(), out.get()), cudaSuccess);
  ASSERT_EQ(launch(1, 32, transpose_tile<33>, in.get(), out.get()), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const auto square = cuda_emulation::kernel_counts("transpose_tile<32>");
  EXPECT_EQ(square.shared_stores.cost, 32u);
  EXPECT_EQ(square.shared_stores.minimum, 32u);
  EXPECT_EQ(square.shared_loads.cost, 1024u);
  EXPECT_EQ(square.shared_loads.minimum, 32u);
  const auto padded = cuda_emulation::kernel_counts("transpose_tile<33>");
  EXPECT_EQ(padded.shared_stores.cost, 32u);
  EXPECT_EQ(padded.shared_loads.cost, 32u);
}

TEST_F(Counters, NothingIsCountedUnasked) {
  use({});
  const DeviceArray<float> in(32), out(32);
  ASSERT_EQ(launch(1, 32, copy_strided, in.get(), out.get(), 1), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cuda_emulation::kernel_counts("copy_strided").global_loads.requests, 0u);
  EXPECT_EQ(cuda_emulation::count_report(), "");
}

}  // namespace
