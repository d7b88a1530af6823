// What goes wrong on a GPU, and what becomes of it: memory that runs out, kernels that fail after their launch, GPUs
// that are lost, and input that only a kernel can see to be wrong.
#include "backends/cuda/runtime.h"
#include "tests/unit/cuda/emulated.h"

namespace backplane::test {
namespace {

class CudaFailure : public testing::Test {
 protected:
  CudaFailure() {
    cuda_emulation::Config config;
    config.devices = 2;
    config.memory = 64 << 20;
    cuda_emulation::configure(config);
  }
  ~CudaFailure() override { cuda_emulation::configure({}); }

  static void expect_doubling(const std::shared_ptr<device::Device>& on) {
    const Tensor x(on, 1, {1, 2, 3}), out(on, BP_TYPE_F32, 1, 3);
    enqueue_doubling(*on, x, out);
    EXPECT_EQ(out.read(*on), (std::vector<float>{2, 4, 6}));
  }
};

TEST_F(CudaFailure, MemoryThatRunsOutIsACapacity) {
  const auto device = open_emulated();
  const std::uint64_t before = device->current_caps().memory_free;
  EXPECT_LE(before, 64u << 20);
  try {
    device->alloc(std::uint64_t{1} << 40, "a test");
    FAIL() << "a terabyte was there";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCapacity) << error.what();
  }
  {
    const device::Buffer some = device->alloc(1 << 20, "a test");
    EXPECT_LE(device->current_caps().memory_free, before - (1 << 20));
  }
  EXPECT_EQ(device->current_caps().memory_free, before);
  expect_doubling(device);
}

TEST_F(CudaFailure, AKernelThatFailsLateLosesTheDeviceAtTheNextWait) {
  const auto device = open_emulated();
  const Tensor x(device, 1, {1, 2, 3}), out(device, BP_TYPE_F32, 1, 3);
  cuda_emulation::Faults faults;
  faults.late_error_at_launch = 1;
  cuda_emulation::inject(faults);
  enqueue_doubling(*device, x, out);
  EXPECT_FALSE(device->lost());
  EXPECT_THROW(device->sync(), DeviceLost);
  EXPECT_TRUE(device->lost());
  EXPECT_THROW(enqueue_doubling(*device, x, out), DeviceLost);
}

TEST_F(CudaFailure, OneLostGpuLeavesTheOtherAlone) {
  const auto lost = open_emulated(0), other = open_emulated(1);
  expect_doubling(lost);
  cuda_emulation::Faults faults;
  faults.loss_at_call = 1;
  cuda_emulation::inject(faults);
  EXPECT_THROW(expect_doubling(lost), DeviceLost);
  EXPECT_TRUE(lost->lost());
  expect_doubling(other);
}

TEST_F(CudaFailure, AGpuThatIsTooOldIsListedAsSuch) {
  cuda_emulation::Config config;
  config.major = 7;
  config.minor = 5;
  cuda_emulation::configure(config);
  const plugins::Registry registry(
      plugins::SearchOptions{.plugins = {}, .environment = {}, .folders = {CUDA_EMULATED_DIR}});
  const auto devices = registry.list_devices();
  ASSERT_EQ(devices.size(), 2u);
  for (const plugins::DeviceEntry& entry : devices) {
    EXPECT_FALSE(entry.available);
    EXPECT_EQ(entry.name, entry.index == 0 ? "cuda_emulated:0" : "cuda_emulated:0-bf16");
    EXPECT_NE(entry.reason.find("7.5: too old, 8.0 is needed"), std::string::npos) << entry.reason;
  }
}

TEST_F(CudaFailure, ErrorsThatEndTheContextLoseTheDevice) {
  for (const cudaError_t error :
       {cudaErrorIllegalAddress, cudaErrorECCUncorrectable, cudaErrorMpsClientTerminated, cudaErrorExternalDevice,
        static_cast<cudaError_t>(226), static_cast<cudaError_t>(721)}) {
    EXPECT_EQ(cuda::status_of(error), bp_status{BP_DEVICE_LOST}) << error;
  }
  for (const cudaError_t error : {cudaErrorDevicesUnavailable, cudaErrorInvalidDeviceFunction, cudaErrorNoDevice}) {
    EXPECT_EQ(cuda::status_of(error), bp_status{BP_UNAVAILABLE}) << error;
  }
  EXPECT_EQ(cuda::status_of(cudaErrorMemoryAllocation), bp_status{BP_OUT_OF_MEMORY});
  EXPECT_EQ(cuda::status_of(cudaErrorInvalidValue), bp_status{BP_INTERNAL});
}

TEST_F(CudaFailure, AnIdOutsideTheVocabularyFailsTheStepAndNothingElse) {
  const auto device = open_emulated();
  const Tensor table(device, 2, {1, 2, 3, 4}), out(device, 2, {7, 7, 7, 7});
  Tensor ids(device, BP_TYPE_I32, 1, 2);
  ids.view.rank = 1;
  ids.view.shape[0] = 2;
  ids.view.shape[1] = 1;
  ids.view.stride[0] = sizeof(std::int32_t);
  bp_embed_args args{};
  args.ids = ids.view;
  args.table.tensor = table.view;
  args.out = out.view;
  for (const std::int32_t wrong : {2, -1, INT32_MAX}) {
    const std::vector<std::int32_t> values = {1, wrong};
    device->upload(ids.buffer, 0, std::as_bytes(std::span(values)));
    enqueue(*device, BP_OP_EMBED, args);
    device::Event behind(device);
    behind.record();
    EXPECT_THROW(behind.wait(), Error) << "who waits for the event only must know, too";
    try {
      device->sync();
      FAIL() << "id " << wrong << " was embedded";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDevice);
      EXPECT_NE(std::string(error.what()).find("outside the vocabulary"), std::string::npos) << error.what();
    }
    EXPECT_FALSE(device->lost());
    EXPECT_EQ(out.read(*device), (std::vector<float>{3, 4, 7, 7})) << "the right one is there, the other left alone";
  }
  expect_doubling(device);
}

}  // namespace
}  // namespace backplane::test
