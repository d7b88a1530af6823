// Whole models on the emulated GPU, with nothing left to another device: the reference's tokens.
#include <set>

#include "plugins/host/host_table.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/cuda/emulated.h"
#include "tests/unit/reuse/answers.h"

namespace backplane {
namespace {

class CudaEngine : public testing::TestWithParam<test::TinyType> {};

TEST_P(CudaEngine, ChoosesTheTokensOfTheReference) {
  test::TempFolder folder;
  const auto path = test::write_tiny_llama(folder, {.type = GetParam(), .head_dim = 32, .context = 96});
  std::vector<device::KernelUse> kernels;  // of the latest run
  const auto tokens = [&](const std::shared_ptr<device::Device>& on) {
    models::LoadOptions options;
    options.context = 96;
    options.max_sequences = 3;
    options.max_step_tokens = 32;
    options.executor.policy = device::FallbackPolicy::kDeny;
    const auto model = models::load(models::ModelFile(path), on, test::open_device("cpu:f32"), options);
    engine::Engine engine(*model, {.max_sequences = 3, .token_budget = 24});
    for (std::uint64_t i = 0; i < 3; ++i) {
      engine::Request asked = request(test::tokens_of(5 + 9 * i, i), 10, i);
      asked.sampling.temperature = 0;
      engine.submit(asked);
    }
    std::vector<Ids> chosen;
    for (const auto& [id, answer] : run_to_end(engine)) chosen.push_back(answer.ids);
    kernels = model->kernels();
    return chosen;
  };
  const auto expected = tokens(test::open_device("cpu:f32"));
  EXPECT_TRUE(kernels.empty()) << "the reference doesn't tell";
  EXPECT_EQ(tokens(test::open_emulated()), expected);
  std::set<std::string> told;
  for (const device::KernelUse& use : kernels) {
    told.insert(use.op + " " + use.shape);
    EXPECT_FALSE(use.kernel.empty());
    EXPECT_GT(use.count, 0u);
    EXPECT_LE(use.fewest_tokens, use.most_tokens);
    EXPECT_EQ(use.device, "cuda_emulated:0");
  }
  for (const char* op : {"LINEAR decode", "LINEAR prefill", "ATTN_DECODE decode", "ATTN_PREFILL prefill"}) {
    EXPECT_TRUE(told.contains(op)) << op;
  }
}

// What the refusal of an op says about the cache's pages follows from something that the user can change.
TEST(CudaLoad, SaysWhyItHasNoCache) {
  test::TempFolder folder;
  const auto why_not = [&](std::uint32_t head_dim, DType kv_type) -> std::string {
    const auto path = test::write_tiny_llama(folder, {.head_dim = head_dim, .context = 32});
    models::LoadOptions options;
    options.context = 32;
    options.kv_type = kv_type;
    options.executor.policy = device::FallbackPolicy::kDeny;
    try {
      models::load(models::ModelFile(path), test::open_emulated(), test::open_device("cpu:f32"), options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDevice);
      return error.what();
    }
    return "nothing was wrong";
  };
  EXPECT_NE(why_not(320, DType::kNone).find("heads of more than 256"), std::string::npos) << why_not(320, DType::kNone);
  EXPECT_NE(why_not(32, DType::kF64).find("none in F64"), std::string::npos) << why_not(32, DType::kF64);
  EXPECT_EQ(why_not(32, DType::kF16), "nothing was wrong");
}

INSTANTIATE_TEST_SUITE_P(Types, CudaEngine, testing::Values(test::TinyType::kF32, test::TinyType::kQ8_0));

}  // namespace
}  // namespace backplane
