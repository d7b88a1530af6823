// Products by cuBLASLt: when it is asked, how often, and what happens without it. The library is the emulation's.
#include <random>

#include "core/device/capture.h"
#include "tests/unit/cuda/emulated.h"

namespace backplane::test {
namespace {

constexpr std::int64_t kRows = 24, kColumns = 40;
constexpr const char* kHeuristic = "cublasLtMatmulAlgoGetHeuristic";

std::vector<float> numbers(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 33) - 16) / 8;  // sums are exact
  return values;
}

class CudaBlas : public testing::Test {
 protected:
  void SetUp() override { use(cuda_emulation::Blas::kThere); }
  void TearDown() override {
    device.reset();
    cuda_emulation::configure({});
  }

  void use(cuda_emulation::Blas blas, bool deterministic = false) {
    device.reset();
    cuda_emulation::Config config;
    config.blas = blas;
    cuda_emulation::configure(config);
    device = open_emulated(0, deterministic);
  }

  // x W^T, and with `residual`, x W^T added to it.
  struct Product {
    Product(const std::shared_ptr<device::Device>& on, std::int64_t tokens, bool adds)
        : x(on, tokens, numbers(tokens * kColumns, 1)),
          weight(on, kRows, numbers(kRows * kColumns, 2)),
          residual(on, tokens, numbers(tokens * kRows, 3)),
          out(on, BP_TYPE_F32, tokens, kRows),
          added(adds),
          workspace(on->alloc(40 << 20, "a test")) {}

    // The kernel that it takes.
    std::string enqueue(device::Device& on) const {
      bp_linear_args args{};
      args.size = sizeof(args);
      args.x = x.view;
      args.weight.tensor = weight.view;
      args.out = out.view;
      args.alpha = 1;
      if (added) {
        args.residual = residual.view;
        args.alpha = 0.5;
      }
      bp_op op{};
      op.size = sizeof(op);
      op.code = added ? BP_OP_LINEAR_ADD : BP_OP_LINEAR;
      op.layer = UINT32_MAX;
      op.args = &args;
      op.workspace = workspace.handle();
      op.workspace_bytes = workspace.bytes();
      const char* kernel = on.run(op);
      return kernel == nullptr ? "" : kernel;
    }
    void expect_right(device::Device& on) const {
      const std::vector<float> got = out.read(on), a = x.read(on), b = weight.read(on), c = residual.read(on);
      for (std::size_t i = 0; i < got.size(); ++i) {
        double want = 0;
        for (std::size_t k = 0; k < kColumns; ++k) want += a[i / kRows * kColumns + k] * b[i % kRows * kColumns + k];
        ASSERT_EQ(got[i], static_cast<float>(added ? c[i] + 0.5 * want : want)) << i;
      }
    }

    Tensor x, weight, residual, out;
    bool added;
    device::Buffer workspace;
  };

  void multiply(std::int64_t tokens, bool added = false) {
    const Product product(device, tokens, added);
    product.enqueue(*device);
    product.expect_right(*device);
  }

  std::shared_ptr<device::Device> device;
};

TEST_F(CudaBlas, ChoosesAnAlgorithmOncePerClassOfShapes) {
  EXPECT_EQ(cuda_emulation::calls("cublasLtCreate"), 0u) << "loaded before it is needed";
  for (const std::int64_t tokens : {40, 40, 64, 33}) multiply(tokens);
  EXPECT_EQ(cuda_emulation::calls("cublasLtCreate"), 1u);
  EXPECT_EQ(cuda_emulation::calls("cublasLtMatmul"), 4u);
  EXPECT_EQ(cuda_emulation::calls(kHeuristic), 1u);
  multiply(65);
  EXPECT_EQ(cuda_emulation::calls(kHeuristic), 2u);
  for (const std::int64_t tokens : {64, 40}) multiply(tokens, true);
  EXPECT_EQ(cuda_emulation::calls("cublasLtMatmul"), 7u);
  EXPECT_EQ(cuda_emulation::calls(kHeuristic), 3u);
}

TEST_F(CudaBlas, IsLeftAloneByFewTokensAndByDeterministicDevices) {
  for (const std::int64_t tokens : {1, 9, 16}) multiply(tokens);
  EXPECT_EQ(cuda_emulation::calls("cublasLtCreate"), 0u);
  multiply(17);
  EXPECT_EQ(cuda_emulation::calls("cublasLtMatmul"), 1u);
  use(cuda_emulation::Blas::kThere, true);
  multiply(40);
  EXPECT_EQ(cuda_emulation::calls("cublasLtCreate"), 0u);
}

TEST_F(CudaBlas, IsOneOfTheKernelsThatAreTold) {
  const auto kernel = [&](std::int64_t tokens, std::int64_t columns) {
    Product product(device, tokens, false);
    product.x.view.shape[1] = product.weight.view.shape[1] = columns;
    return product.enqueue(*device);
  };
  EXPECT_EQ(kernel(1, kColumns), "few, 1 token");
  EXPECT_EQ(kernel(3, kColumns), "few, 4 tokens");
  EXPECT_EQ(kernel(1, kColumns - 1), "few, 8 tokens") << "rows that are no whole vectors";
  EXPECT_EQ(kernel(16, kColumns), "mma, 32 x 32");
  EXPECT_EQ(kernel(16, kColumns - 1), "mma, 128 x 128");
  EXPECT_EQ(kernel(17, kColumns), "cuBLASLt");
}

TEST_F(CudaBlas, MayBeMissing) {
  use(cuda_emulation::Blas::kMissing);
  for (const std::int64_t tokens : {17, 40, 70}) multiply(tokens);
  multiply(70, true);
  EXPECT_EQ(cuda_emulation::calls("cublasLtCreate"), 0u);
}

TEST_F(CudaBlas, IsAskedOnceWhereItRefuses) {
  use(cuda_emulation::Blas::kRefuses);
  for (const std::int64_t tokens : {40, 41, 40}) multiply(tokens);
  EXPECT_EQ(cuda_emulation::calls(kHeuristic), 1u);
  EXPECT_EQ(cuda_emulation::calls("cublasLtMatmul"), 0u);
}

TEST_F(CudaBlas, KeepsAClassOfWhichItRefusesOne) {
  use(cuda_emulation::Blas::kRefusesOdd);
  for (const std::int64_t tokens : {40, 41, 41, 40}) multiply(tokens);
  EXPECT_EQ(cuda_emulation::calls(kHeuristic), 1u);
  EXPECT_EQ(cuda_emulation::calls("cublasLtMatmul"), 3u) << "41 is asked for once";
}

TEST_F(CudaBlas, IsTheOlderOneWhereTheNewerCannotStart) {
  use(cuda_emulation::Blas::kTooNew);
  multiply(40);
  EXPECT_EQ(cuda_emulation::calls("cublasLtCreate"), 2u);
  EXPECT_EQ(cuda_emulation::calls("cublasLtMatmul"), 1u);
}

// A handle of the library waits for the whole GPU when it is made and when it goes, which spoils recordings.
TEST_F(CudaBlas, ComesAndGoesWhileNobodyRecordsOnItsGpu) {
  const Product product(device, 40, false);
  std::shared_ptr<device::Device> other = open_emulated();
  const auto record = [&](auto&& meanwhile) {
    device::Captures captures(device);
    const device::CaptureKey key{.tokens = 1};
    captures.next(key);
    ASSERT_TRUE(captures.begin());
    product.enqueue(*device);
    meanwhile();
    ASSERT_TRUE(captures.end(key));
    captures.launch(key);
    product.expect_right(*device);
  };
  const auto multiply_there = [&] {
    const Product there(other, 40, false);
    there.enqueue(*other);
    there.expect_right(*other);
  };
  record(multiply_there);
  EXPECT_EQ(cuda_emulation::calls("cublasLtCreate"), 0u);
  multiply_there();
  EXPECT_EQ(cuda_emulation::calls("cublasLtCreate"), 1u);
  record([&] { other.reset(); });
  EXPECT_EQ(cuda_emulation::calls("cublasLtDestroy"), 0u);
  other = open_emulated();
  multiply_there();
  other.reset();
  EXPECT_EQ(cuda_emulation::calls("cublasLtDestroy"), 1u);
}

TEST_F(CudaBlas, IsRecordedOnceItHasChosen) {
  const Product product(device, 40, false);
  device::Captures captures(device);
  const auto record = [&](const device::CaptureKey& key) {
    captures.next(key);
    ASSERT_TRUE(captures.begin());
    product.enqueue(*device);
    ASSERT_TRUE(captures.end(key));
    captures.launch(key);
    product.expect_right(*device);
  };
  record({.tokens = 1});
  EXPECT_EQ(cuda_emulation::calls("cublasLtCreate"), 0u) << "what loads and chooses may not be recorded";
  product.enqueue(*device);
  EXPECT_EQ(cuda_emulation::calls("cublasLtMatmul"), 1u);
  record({.tokens = 2});
  EXPECT_EQ(cuda_emulation::calls("cublasLtMatmul"), 2u);
  EXPECT_EQ(cuda_emulation::calls(kHeuristic), 1u);
}

}  // namespace
}  // namespace backplane::test
