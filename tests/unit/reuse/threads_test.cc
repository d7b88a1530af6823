// The number of threads changes no bit.
#include "plugins/host/host_table.h"
#include "tests/unit/reuse/answers.h"

namespace backplane {
namespace {

// Logits of whole texts, and tokens and log-probabilities of requests that share their steps.
struct Outcome {
  test::Outputs outputs;
  Answers answers;
  bool operator==(const Outcome&) const = default;
};

Outcome run(engine::Model& model) {
  Outcome out{.outputs = test::run_all(model), .answers = {}};
  engine::Engine engine(model, {.max_sequences = 4, .token_budget = 16});
  for (std::uint64_t i = 0; i < 4; ++i) engine.submit(request(test::tokens_of(5 + 4 * i, i), 12, i));
  out.answers = run_to_end(engine);
  const auto& records = engine.steps().records();
  EXPECT_TRUE(std::any_of(records.begin(), records.end(), [](const auto& step) { return step.n_decode == 4; }));
  return out;
}

TEST(Threads, OneToFourGiveTheSameBits) {
  const test::TempFolder folder;
  const auto path = test::write_tiny_llama(folder, {.layers = 3});
  for (const char* device : {"cpu:f32", "cpu:f64"}) {
    std::vector<Outcome> outcomes;
    for (unsigned threads = 1; threads <= 4; ++threads) {
      plugins::set_host_threads(threads);
      const auto cpu = test::open_device(device);
      const auto model = test::load_on(path, cpu, {}, cpu);
      outcomes.push_back(run(*model));
      EXPECT_EQ(plugins::host_pool().threads(), threads) << "the one whose loops the plugin ran";
      EXPECT_EQ(outcomes.back(), outcomes.front()) << device << ", " << threads << " threads";
    }
    EXPECT_EQ(outcomes.front().answers.size(), 4u);
  }
}

}  // namespace
}  // namespace backplane
