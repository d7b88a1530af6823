// What a request gives does not depend, in any bit, on how it came to be computed: found in the cache, in chunks, among
// others, again after it was preempted, or as one of several answers. The records of the steps show that it was so.
#include <gtest/gtest.h>

#include "core/base/log.h"
#include "models/failover_model.h"
#include "models/phase_model.h"
#include "tests/support/wrapped_model.h"
#include "tests/unit/reuse/answers.h"

namespace backplane {
namespace {

using engine::Engine;
using engine::Request;

Ids joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Case {
  const char* name;
  const char* device;
  test::TinyLlama llama = {};
  bool gpt2 = false;
};
void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

class Bitwise : public testing::TestWithParam<Case> {
 protected:
  Bitwise()
      : path_(GetParam().gpt2 ? test::write_tiny_gpt2(folder_) : test::write_tiny_llama(folder_, GetParam().llama)),
        model_(load()) {}

  std::unique_ptr<models::LoadedModel> load() const {
    models::LoadOptions options;
    options.max_sequences = 6;
    options.max_step_tokens = 72;
    options.page_size = 4;
    options.executor = test::policy(device::FallbackPolicy::kAllow);
    const std::string name = GetParam().device;
    const auto cpu = test::open_device("cpu:f32");
    const models::ModelFile file(path_);
    if (name == "both") return models::load(file, {{test::open_opaque(), 1}, {cpu, std::nullopt}}, cpu, options);
    return models::load(file, name == "opaque" ? test::open_opaque() : test::open_device(name), cpu, options);
  }

  // With nothing else in the engine, in one step for the prompt, and with nothing to find.
  Answer alone(Request asked) {
    Engine engine(*model_, {.prefix_cache = false});
    const std::size_t prompt = asked.prompt.size();
    engine.submit(std::move(asked));
    const Answer answer = run_to_end(engine).begin()->second;
    EXPECT_EQ(engine.steps().records().front().tokens, prompt);
    EXPECT_EQ(engine.steps().records().size(), answer.ids.size());
    return answer;
  }

  test::TempFolder folder_;
  std::filesystem::path path_;
  std::unique_ptr<models::LoadedModel> model_;
};

TEST_P(Bitwise, FoundInTheCache) {
  const Ids system = test::tokens_of(18, 1);
  const Ids first = joined(system, test::tokens_of(5, 2)), second = joined(system, test::tokens_of(7, 3));
  const Answer want = alone(request(second));
  Engine engine(*model_, {});
  engine.submit(request(first));
  run_to_end(engine);
  const std::uint64_t before = engine.steps().steps_run();
  engine.submit(request(second));
  EXPECT_EQ(run_to_end(engine).begin()->second, want);
  const engine::StepRecord& hit = engine.steps().records().at(before);
  EXPECT_EQ(hit.cached, 16u);
  EXPECT_EQ(hit.tokens, 9u);
  // And its reply, as part of a longer prompt.
  const Ids longer = joined(joined(second, want.ids), test::tokens_of(3, 4));
  const Answer reply = alone(request(longer));
  Engine again(*model_, {});
  again.submit(request(second));
  run_to_end(again);
  again.submit(request(longer));
  EXPECT_EQ(run_to_end(again).begin()->second, reply);
  EXPECT_EQ(again.stats().prefix.found, 32u);
}

// A prompt longer than the largest chunk, but where the context is as short.
TEST_P(Bitwise, InChunksOfAnySize) {
  const auto length = std::min(65u, model_->shape().max_context - 7);
  const Request asked = request(test::tokens_of(length, 1));
  const Answer want = alone(asked);
  for (std::uint32_t chunk = 1; chunk <= 64; ++chunk) {
    SCOPED_TRACE(chunk);
    Engine engine(*model_, {.max_sequences = 1, .token_budget = chunk, .prefix_cache = false});
    engine.submit(asked);
    EXPECT_EQ(run_to_end(engine).begin()->second, want);
    std::uint32_t done = 0;
    for (const engine::StepRecord& record : engine.steps().records()) {
      EXPECT_EQ(record.cached, done);
      EXPECT_EQ(record.tokens, done < length ? std::min(chunk, length - done) : 1);
      done += record.tokens;
    }
    EXPECT_EQ(done, length + 7);
  }
}

// Of other lengths, which come while others decode, so that steps are of every kind.
TEST_P(Bitwise, AmongOthers) {
  Engine engine(*model_, {.max_sequences = 6, .token_budget = 16, .prefix_cache = false});
  std::vector<Request> asked;
  std::vector<engine::RequestId> ids;
  Answers answers;
  for (std::uint64_t i = 0; i < 6; ++i) {
    asked.push_back(request(test::tokens_of(3 + 5 * i, i), 26, i));
    asked.back().sampling.temperature = i % 2 == 0 ? 1.2 : 0;
    ids.push_back(engine.submit(asked.back()));
    if (i % 2 == 1) collect(answers, engine.step());
  }
  while (!engine.idle()) collect(answers, engine.step());
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(answers.at({ids[i], 0}), alone(asked[i])) << i;
  bool all = false, mixed = false, several = false;
  for (const engine::StepRecord& record : engine.steps().records()) {
    all |= record.n_decode == 6;
    mixed |= record.n_decode > 0 && record.sequences > record.n_decode;
    several |= record.sequences > record.n_decode + 1;
  }
  EXPECT_TRUE(all && mixed && several) << all << mixed << several;
}

// Not behind windows: there a sequence is promised all it can ever hold.
class Crowded : public Bitwise {};

TEST_P(Crowded, PreemptedForPages) {
  std::vector<Request> asked;
  std::vector<Answer> want;
  for (std::uint64_t i = 0; i < 4; ++i) {
    asked.push_back(request(test::tokens_of(9 + i, i), 24, i));
    want.push_back(alone(asked.back()));
  }
  test::SmallPool pool(*model_, 16);
  Engine engine(pool, {.max_sequences = 4, .token_budget = 16, .headroom = 0});
  std::vector<engine::RequestId> ids;
  for (const Request& each : asked) ids.push_back(engine.submit(each));
  const Answers answers = run_to_end(engine);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(answers.at({ids[i], 0}), want[i]) << i;
  EXPECT_GT(engine.stats().preempted, 1u);
  EXPECT_GT(computed(engine), 9u + 10 + 11 + 12 + 4 * 23 + 20) << "something was computed again";
  EXPECT_EQ(engine.fault(), "");
}

TEST_P(Bitwise, PreemptedForAnotherAndFoundAgain) {
  const Request urgent = request(test::tokens_of(10, 1), 5), patient = request(test::tokens_of(14, 2), 20);
  const Answer first = alone(urgent), second = alone(patient);
  for (const bool cache : {false, true}) {
    Engine engine(*model_, {.max_sequences = 1, .token_budget = 8, .prefix_cache = cache});
    Request low = patient;
    low.priority = 1;
    const engine::RequestId b = engine.submit(low);
    Answers answers;
    for (int i = 0; i < 10; ++i) collect(answers, engine.step());
    const engine::RequestId a = engine.submit(urgent);
    while (!engine.idle()) collect(answers, engine.step());
    EXPECT_EQ(answers.at({a, 0}), first);
    EXPECT_EQ(answers.at({b, 0}), second);
    EXPECT_EQ(engine.stats().preempted, 1u);
    // It had its prompt and eight of its tokens when it had to yield: 22, in five full pages and a part of one.
    EXPECT_EQ(engine.stats().prefix.found, cache ? 20u : 0u);
    EXPECT_EQ(computed(engine), 14u + 33 + 22 - (cache ? 20 : 0));
  }
}

TEST_P(Bitwise, AmongOthersThatShareItsPrompt) {
  const Ids prompt = test::tokens_of(21, 1);
  std::vector<Answer> want;
  for (std::uint64_t i = 0; i < 4; ++i) {
    want.push_back(alone(request(joined(prompt, test::tokens_of(i, i)), 10, i)));
  }
  Engine engine(*model_, {.max_sequences = 6, .token_budget = 24});
  std::vector<engine::RequestId> ids;
  Answers answers;
  for (std::uint64_t i = 0; i < 4; ++i) {
    ids.push_back(engine.submit(request(joined(prompt, test::tokens_of(i, i)), 10, i)));
    collect(answers, engine.step());
  }
  while (!engine.idle()) collect(answers, engine.step());
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(answers.at({ids[i], 0}), want[i]) << i;
  EXPECT_EQ(engine.stats().prefix.found, 3u * 20);
  std::uint32_t most = 0;
  for (const engine::StepRecord& record : engine.steps().records()) most = std::max(most, record.n_decode);
  EXPECT_EQ(most, 4u);
}

TEST_P(Bitwise, AsOneOfSeveralAnswers) {
  const Ids prompt = test::tokens_of(18, 1);
  std::vector<Answer> want;
  for (std::uint32_t i = 0; i < 4; ++i) {
    Request one = request(prompt, 10);
    one.sampling.choice = i;
    want.push_back(alone(one));
  }
  EXPECT_NE(want[0], want[1]);
  Request asked = request(prompt, 10);
  asked.n = 4;
  Engine engine(*model_, {.max_sequences = 3, .token_budget = 32});
  const engine::RequestId id = engine.submit(asked);
  const Answers answers = run_to_end(engine);
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(answers.at({id, i}), want[i]) << i;
  EXPECT_EQ(engine.steps().records().front().tokens, 18u);
  EXPECT_GT(engine.stats().pages_copied, 0u);
  EXPECT_EQ(computed(engine), 18u + 4 * 9) << "the prompt once";
}

constexpr test::TinyLlama kLong = {.context = 80};
const Case kFull[] = {{"cpu_f32", "cpu:f32", kLong},
                      {"cpu_f64", "cpu:f64", kLong},
                      {"cpu_f32_gpt2", "cpu:f32", {}, true},
                      {"layers_on_two", "both", kLong},
                      {"own_layout", "opaque", kLong}};
const Case kWindows[] = {{"cpu_f32_window", "cpu:f32", {.qk_norm = true, .window = 6}},
                         {"cpu_f64_window", "cpu:f64", {.window = 9, .tied = true}},
                         {"own_layout_window", "opaque", {.window = 6}}};
const auto kName = [](const auto& each) { return each.param.name; };
INSTANTIATE_TEST_SUITE_P(Full, Bitwise, testing::ValuesIn(kFull), kName);
INSTANTIATE_TEST_SUITE_P(Windows, Bitwise, testing::ValuesIn(kWindows), kName);
INSTANTIATE_TEST_SUITE_P(Full, Crowded, testing::ValuesIn(kFull), kName);

// Several answers to a prompt, whose pages are shared and copied.
class SharedPages : public testing::Test {
 protected:
  SharedPages() : file_(test::write_tiny_llama(folder_, {.layers = 1, .tied = true})) {
    options_.max_sequences = 3;
    options_.max_step_tokens = 20;
    options_.executor = test::policy(device::FallbackPolicy::kAllow);
    options_ = models::resolve(options_, file_.spec(), {test::open_opaque(), cpu_});
    set_log_level(LogLevel::kError);
  }
  ~SharedPages() override { set_log_level(LogLevel::kWarning); }

  std::unique_ptr<models::LoadedModel> load(std::shared_ptr<device::Device> device) const {
    return models::load(file_, std::move(device), cpu_, options_);
  }
  static Answers three_answers(engine::Model& model) {
    Engine engine(model);
    Request asked = request(test::tokens_of(9, 5), 4);
    asked.n = 3;
    engine.submit(asked);
    const Answers answers = run_to_end(engine);
    EXPECT_EQ(answers.size(), 3u);
    EXPECT_EQ(engine.stats().pages_copied, 3u);
    return answers;
  }

  test::TempFolder folder_;
  models::ModelFile file_;
  models::LoadOptions options_;
  std::shared_ptr<device::Device> cpu_ = test::open_device("cpu:f32");
};

TEST_F(SharedPages, AreCopiedOnTheDeviceThatHasThem) {
  const Answers want = three_answers(*load(cpu_));
  models::PhaseModel phases(load(cpu_), load(test::open_device("cpu:f32")));
  EXPECT_EQ(three_answers(phases), want);
  EXPECT_GT(phases.pages_moved(), 0u);
}

TEST_F(SharedPages, ADeviceThatDiesAtAnyCallChangesNoAnswer) {
  Answers want;
  std::uint64_t loading = 0, all = 0;
  {
    opaque::Report report;
    const auto model = load(test::open_opaque("opaque:f32", report.option()));
    loading = report.calls;
    want = three_answers(*model);
    all = report.calls;
  }
  ASSERT_GT(all, loading + 50);
  for (std::uint64_t n = loading + 1; n <= all && !HasFailure(); ++n) {
    SCOPED_TRACE(n);
    opaque::Report report;
    const std::string dies = report.option() + ",fail_at=" + std::to_string(n) + ":" + std::to_string(BP_DEVICE_LOST);
    models::FailoverModel model(load(test::open_opaque("opaque:f32", dies)),
                                {"opaque:f32", [this] { return load(test::open_opaque()); }});
    Engine engine(model);
    Request asked = request(test::tokens_of(9, 5), 4);
    asked.n = 3;
    engine.submit(asked);
    EXPECT_EQ(run_to_end(engine), want);
    EXPECT_TRUE(model.failed_over());
    EXPECT_EQ(engine.fault(), "");
  }
}

}  // namespace
}  // namespace backplane
