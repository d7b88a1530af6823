// Requests through the engine on the fast CPU: the same tokens and log-probabilities alone, among others, with a part
// of the prompt found in the cache, and when there is so little room that some are preempted.
#include "plugins/host/host_table.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/reuse/answers.h"

namespace backplane {
namespace {

using engine::Engine;

class OnednnEngine : public testing::TestWithParam<test::TinyType> {
 protected:
  std::unique_ptr<models::LoadedModel> load(std::uint64_t kv_tokens = 0) const {
    models::LoadOptions options;
    options.context = 160;
    options.max_sequences = 5;
    options.max_step_tokens = 96;
    options.kv_tokens = kv_tokens;
    options.executor.policy = device::FallbackPolicy::kDeny;
    return models::load(models::ModelFile(path_), test::open_device("onednn:0"), test::open_device("cpu:f32"), options);
  }

  static engine::Request asked(std::uint64_t i) {
    Ids prompt = test::tokens_of(40, 99);  // the same beginning for all: more than two pages
    const Ids own = test::tokens_of(5 + 7 * i, i);
    prompt.insert(prompt.end(), own.begin(), own.end());
    return request(prompt, 24, i);
  }

  // Each by itself in a new engine.
  static std::vector<Answer> alone(engine::Model& model) {
    std::vector<Answer> out;
    for (std::uint64_t i = 0; i < 5; ++i) {
      Engine engine(model, {.prefix_cache = false});
      engine.submit(asked(i));
      out.push_back(run_to_end(engine).begin()->second);
    }
    return out;
  }

  static std::vector<Answer> together(Engine& engine) {
    std::vector<engine::RequestId> ids;
    for (std::uint64_t i = 0; i < 5; ++i) ids.push_back(engine.submit(asked(i)));
    Answers answers = run_to_end(engine);
    std::vector<Answer> out;
    for (const auto id : ids) out.push_back(answers.at({id, 0}));
    return out;
  }

  test::TempFolder folder_;
  std::filesystem::path path_ = test::write_tiny_llama(folder_, {.type = GetParam(), .head_dim = 32, .context = 160});
};

TEST_P(OnednnEngine, AmongOthersAndFromTheCache) {
  const auto model = load();
  const std::vector<Answer> want = alone(*model);
  Engine engine(*model, {.max_sequences = 5, .token_budget = 40});
  EXPECT_EQ(together(engine), want);
  EXPECT_EQ(together(engine), want) << "the prompts are in the cache now";
  const auto& records = engine.steps().records();
  EXPECT_TRUE(std::any_of(records.begin(), records.end(), [](const auto& step) { return step.n_decode == 5; }));
  EXPECT_GT(engine.stats().prefix.found, 4u * 32u);
}

TEST_P(OnednnEngine, Preempted) {
  const auto roomy = load();
  const std::vector<Answer> want = alone(*roomy);
  const auto model = load(224);
  Engine engine(*model, {.max_sequences = 5, .token_budget = 64, .prefix_cache = false, .headroom = 0});
  EXPECT_EQ(together(engine), want);
  EXPECT_GT(engine.stats().preempted, 0u);
}

using test::TinyType;
INSTANTIATE_TEST_SUITE_P(Types, OnednnEngine,
                         testing::Values(TinyType::kF32, TinyType::kF16, TinyType::kQ5_0, TinyType::kQ8_0));

}  // namespace
}  // namespace backplane
