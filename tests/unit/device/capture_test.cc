// Decode steps that are recorded and launched give what running each op gives.
#include "core/device/capture.h"

#include <utility>

#include "tests/support/tiny_hf_model.h"
#include "tests/unit/device/runs.h"

namespace backplane {
namespace {

using device::CaptureKey;
using device::Captures;
using device::ExecutorOptions;
using test::load_on;
using test::open_opaque;

using Tokens = std::vector<std::pair<TokenId, double>>;  // with their log-probabilities

Tokens generate(engine::Model& model, std::size_t prompt, std::uint32_t max_tokens) {
  engine::Engine engine(model, {.max_sequences = 4, .token_budget = 16});
  Tokens tokens;
  engine::Request request;
  request.prompt = test::tokens_of(prompt, prompt);
  request.sampling.temperature = 0;
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  request.top_logprobs = 0;
  engine.submit(std::move(request));
  while (!engine.idle()) {
    for (const engine::Event& event : engine.step()) {
      if (event.error) throw *event.error;
      tokens.emplace_back(event.token, event.logprob.value());
    }
  }
  return tokens;
}

class CaptureTest : public testing::Test {
 protected:
  test::Outputs uncaptured(const std::filesystem::path& path) {
    ExecutorOptions options;
    options.capture = false;
    const auto loaded = load_on(path, open_opaque(), options);
    test::Outputs out = test::run_all(*loaded);
    EXPECT_EQ(loaded->executor().captures().recorded, 0u);
    return out;
  }
  test::TempFolder folder_;
};

TEST_F(CaptureTest, GivesTheSameBits) {
  struct Case {
    const char* name;
    std::filesystem::path path;
  };
  const test::TempFolder a, b, c;
  const Case cases[] = {{"llama", test::write_tiny_llama(a, {.layers = 2})},
                        {"windowed", test::write_tiny_llama(b, {.window = 7})},
                        {"gpt2", test::write_tiny_gpt2(c)}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.name);
    opaque::Report report;
    {
      const auto loaded = load_on(each.path, open_opaque("opaque:f32", report.option()));
      EXPECT_EQ(test::run_all(*loaded), uncaptured(each.path));
      const device::CaptureCounts counts = loaded->executor().captures();
      EXPECT_GT(counts.recorded, 0u);
      EXPECT_GT(counts.launched, counts.recorded);
      EXPECT_EQ(counts.refused, 0u);
      EXPECT_EQ(report.launches, counts.launched);
    }
    EXPECT_EQ(report.live, 0u);
    EXPECT_EQ(report.misuse, 0u);
  }
}

// Over many pages, so that page tables get wider; every launch must follow the descriptor.
TEST_F(CaptureTest, ServesALongSequenceWithFewRecordings) {
  const auto path = test::write_tiny_llama(folder_, {.layers = 2});
  const auto captured = load_on(path, open_opaque());
  ExecutorOptions off;
  off.capture = false;
  const auto plain = load_on(path, open_opaque(), off);
  EXPECT_EQ(generate(*captured, 5, 50), generate(*plain, 5, 50));
  const device::CaptureCounts counts = captured->executor().captures();
  EXPECT_GE(counts.launched, 40u);
  EXPECT_LE(counts.recorded, 4u);
  const std::uint64_t before = counts.recorded;
  EXPECT_EQ(generate(*captured, 9, 40), generate(*plain, 9, 40));
  EXPECT_EQ(captured->executor().captures().recorded, before) << "an earlier request's recordings serve this one";
}

TEST_F(CaptureTest, RecordsNothingWhereOneOpRunsElsewhere) {
  const auto path = test::write_tiny_llama(folder_, {});
  const test::Outputs expected = uncaptured(path);
  ExecutorOptions allow = test::policy(device::FallbackPolicy::kAllow);
  for (const char* options : {"no_graph=1", "without=NORM", "uncapturable=LINEAR"}) {
    SCOPED_TRACE(options);
    const auto loaded = load_on(path, open_opaque("opaque:f32", options), allow);
    test::expect_same(test::run_all(*loaded), expected);
    EXPECT_EQ(loaded->executor().captures().recorded, 0u);
  }
  for (const char* table : {"graph", "stream"}) {
    const auto loaded = load_on(path, open_opaque("opaque:f32", "", {table}), allow);
    EXPECT_EQ(test::run_all(*loaded), expected);
    EXPECT_EQ(loaded->executor().captures().recorded, 0u);
  }
}

// Whatever call fails while a step is recorded: the step is run op by op, or fails as a whole, and the next one works.
TEST_F(CaptureTest, SurvivesAFailureWhileRecording) {
  const auto path = test::write_tiny_llama(folder_, {});
  const Tokens expected = generate(*load_on(path, open_opaque()), 5, 12);
  opaque::Report report;
  std::uint64_t calls = 0;
  {
    const auto loaded = load_on(path, open_opaque("opaque:f32", report.option()));
    calls = report.calls;
    generate(*loaded, 5, 12);
  }
  const std::uint64_t all = report.calls;
  int refused = 0, failed = 0;
  for (std::uint64_t n = calls + 1; n <= all; n += 2) {
    opaque::Report faulty;
    const auto loaded = load_on(path, open_opaque("opaque:f32", faulty.option()));
    faulty.fail_at = n;
    try {
      EXPECT_EQ(generate(*loaded, 5, 12), expected) << n;
    } catch (const Error& error) {
      ++failed;
      EXPECT_EQ(error.code(), ErrorCode::kDevice);
    }
    refused += loaded->executor().captures().refused > 0;
    faulty.fail_at = 0;
    EXPECT_EQ(generate(*loaded, 5, 12), expected) << n;
  }
  EXPECT_GT(refused, 3);
  EXPECT_GT(failed, 3);
}

// Dynamic NTK chooses a request's rope factors by its length.
TEST_F(CaptureTest, ARopeTableThatChangesIsBroughtBeforeALaunch) {
  const auto path = test::write_tiny_hf(folder_, test::TinyHf::kMistral);
  folder_.write("config.json", R"({"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": true,
      "vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "max_position_embeddings": 16, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
      "hidden_act": "silu", "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}})");
  const auto captured = load_on(path, open_opaque());
  ExecutorOptions off;
  off.capture = false;
  const auto plain = load_on(path, open_opaque(), off);
  std::vector<Tokens> all;
  for (const std::uint32_t length : {9u, 30u, 50u, 9u}) {
    all.push_back(generate(*captured, 5, length));
    EXPECT_EQ(all.back(), generate(*plain, 5, length)) << length;
  }
  EXPECT_GT(captured->executor().captures().launched, 20u);
  all[2].resize(9);
  EXPECT_NE(all[0], all[2]) << "the factors made no difference, so this test shows nothing";
}

TEST(Captures, KeepTheKeysUsedLast) {
  Captures captures(open_opaque(), 2);
  const CaptureKey a{1, 1, 1}, b{2, 2, 1}, c{3, 3, 1};
  EXPECT_EQ(captures.next(a), Captures::Way::kRun);
  EXPECT_EQ(captures.next(a), Captures::Way::kRecord);
  ASSERT_TRUE(captures.begin());
  ASSERT_TRUE(captures.end(a));
  EXPECT_EQ(captures.next(a), Captures::Way::kLaunch);
  captures.launch(a);
  EXPECT_EQ(captures.next(b), Captures::Way::kRun);
  EXPECT_EQ(captures.next(a), Captures::Way::kLaunch);
  EXPECT_EQ(captures.next(c), Captures::Way::kRun) << "b makes room";
  EXPECT_EQ(captures.next(a), Captures::Way::kLaunch);
  EXPECT_EQ(captures.next(b), Captures::Way::kRun);
  EXPECT_EQ(captures.next(c), Captures::Way::kRun) << "c made room for b";
}

}  // namespace
}  // namespace backplane
