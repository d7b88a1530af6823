// Five hundred requests from four threads, a KV cache that holds little more than one of them, a fifth canceled: all
// others get what they would have got alone, and no page is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <thread>

#include "core/engine/generation.h"
#include "core/engine/service.h"
#include "models/load.h"
#include "tests/support/opaque_device.h"
#include "tests/support/tiny_model.h"
#include "trace.h"

namespace backplane {
namespace {

constexpr std::size_t kRequests = 500;
constexpr std::uint32_t kVocabulary = 96, kContext = 64;

struct Answer {
  std::vector<TokenId> ids;
  std::vector<double> logprobs;
  engine::FinishReason finish = engine::FinishReason::kNone;
};

struct Case {
  engine::Request request;
  int cancel_after = -1;  // so many events; never for -1
  std::vector<Answer> answers;
  std::atomic<int> events = 0;
};

// Lengths as in the trace, scaled to the context; some prompts begin alike, and no two requests are asked for alike.
void fill(std::vector<Case>& cases, std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto lengths = test::trace_lengths(cases.size(), random);
  std::vector<TokenId> common(16);
  for (TokenId& id : common) id = static_cast<TokenId>(random() % kVocabulary);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    engine::Request& request = cases[i].request;
    request.prompt.resize(std::clamp(lengths[i].prompt * 30 / 4096, 1u, 30u));
    for (TokenId& id : request.prompt) id = static_cast<TokenId>(random() % kVocabulary);
    if (random() % 4 == 0)
      std::copy_n(common.begin(), std::min(common.size(), request.prompt.size()), request.prompt.begin());
    request.max_tokens = std::clamp(lengths[i].generated * 30 / 450, 1u, 34u);
    request.eos_ids = {5};
    request.ignore_eos = random() % 2 == 0;
    request.top_logprobs = 0;
    request.sampling.seed = random();
    if (random() % 2 == 0) request.sampling.temperature = 1;
    if (random() % 4 == 0) request.sampling.repetition_penalty = 1.3;
    if (random() % 4 == 0) request.sampling.top_p = 0.8;
    if (random() % 8 == 0) request.n = 2 + random() % 2;
    if (random() % 8 == 0) request.priority = static_cast<std::int32_t>(random() % 3) - 1;
    if (random() % 8 == 0) request.cache_salt = "other";
    if (random() % 5 == 0) cases[i].cancel_after = static_cast<int>(random() % 12);
    cases[i].answers.resize(request.n);
  }
}

std::unique_ptr<models::LoadedModel> load(const std::string& device, const std::filesystem::path& file,
                                          const models::LoadOptions& options) {
  const auto opened = device == "opaque" ? test::open_opaque() : test::open_device(device);
  return models::load(models::ModelFile(file), opened, test::open_device("cpu:f32"), options);
}

// Each answer alone: a fresh sequence in a whole cache.
std::vector<std::vector<Answer>> serial(const std::string& device, const std::filesystem::path& file,
                                        const std::vector<Case>& cases) {
  const auto model = load(device, file, {});
  engine::Engine engine(*model, {.max_sequences = 1, .prefix_cache = false});
  std::vector<std::vector<Answer>> out;
  for (const Case& each : cases) {
    out.emplace_back();
    for (std::uint32_t i = 0; i < each.request.n; ++i) {
      engine::Request request = each.request;
      request.n = 1;
      request.sampling.choice = i;
      engine::Generation done = engine::generate(engine, request);
      out.back().push_back({std::move(done.ids), std::move(done.logprobs), done.finish});
    }
  }
  return out;
}

void submit(engine::Service& service, Case& each) {
  const auto id = std::make_shared<std::atomic<std::int64_t>>(-1);
  const engine::RequestId given = service.submit(each.request, [&each, &service, id](const engine::Event& event) {
    Answer& answer = each.answers.at(event.answer);
    if (event.token >= 0) answer.ids.push_back(event.token);
    if (event.logprob) answer.logprobs.push_back(*event.logprob);
    answer.finish = event.finish;
    if (++each.events == each.cancel_after && id->load() >= 0) {
      service.cancel(engine::RequestId{static_cast<std::uint64_t>(id->load())});
    }
  });
  id->store(static_cast<std::int64_t>(given));
  if (each.cancel_after >= 0 && each.events >= each.cancel_after) service.cancel(given);
}

// Of a canceled one, the beginning.
void expect_answers(const Case& got, const std::vector<Answer>& want, int& canceled, int& failures) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    Answer whole = want[i];
    const Answer& answer = got.answers[i];
    if (answer.finish == engine::FinishReason::kCanceled) {
      ++canceled;
      EXPECT_GE(got.cancel_after, 0);
      ASSERT_LE(answer.ids.size(), whole.ids.size());
      whole.ids.resize(answer.ids.size());
      whole.logprobs.resize(answer.ids.size());
    } else if (answer.finish != whole.finish) {
      ++failures;
    }
    if (answer.ids != whole.ids || answer.logprobs != whole.logprobs) ++failures;
  }
}

class Stress : public ::testing::TestWithParam<const char*> {
 protected:
  test::TempFolder folder_;
};

TEST_P(Stress, EachGetsWhatItWouldGetAlone) {
  const auto file = test::write_tiny_llama(folder_);
  std::vector<Case> cases(kRequests);
  fill(cases, 20231116);
  const auto want = serial(GetParam(), file, cases);

  // Nine pages more than a single sequence may need.
  const auto model = load(GetParam(), file,
                          {.context = kContext,
                           .max_sequences = 12,
                           .kv_tokens = kContext + 36,
                           .max_step_tokens = 48,
                           .page_size = 4,
                           .executor = {}});
  ASSERT_EQ(model->pages(0), 25u);
  engine::ServiceOptions options{.engine = {.max_sequences = 12, .token_budget = 48, .headroom = 0},
                                 .max_requests = kRequests};
  engine::Service service(*model, options);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = t; i < cases.size(); i += 4) submit(service, cases[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  service.drain();

  int canceled = 0, failures = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    expect_answers(cases[i], want[i], canceled, failures);
  }
  EXPECT_EQ(failures, 0);
  EXPECT_GT(canceled, 20);
  const engine::ServiceStats stats = service.between_steps([&](engine::Engine&) { return service.stats(); });
  RecordProperty("preempted", static_cast<int>(stats.engine.preempted));
  EXPECT_GT(stats.engine.preempted, 50u);
  EXPECT_GT(stats.engine.prefix.found, 0u);
  ASSERT_EQ(stats.pages.size(), 1u);
  const kv::PoolCounts pages = stats.pages[0];
  EXPECT_EQ(pages.held, 0u);
  EXPECT_EQ(pages.free + pages.cached + pages.held, pages.total);
  EXPECT_EQ(stats.open, 0u);
  EXPECT_EQ(stats.stopped + stats.length + stats.failed + stats.canceled,
            std::accumulate(cases.begin(), cases.end(), 0u, [](unsigned n, const Case& c) { return n + c.request.n; }));
  EXPECT_EQ(stats.failed, 0u);
}

std::string name_of(const ::testing::TestParamInfo<const char*>& info) { return info.index == 0 ? "cpu" : "opaque"; }
INSTANTIATE_TEST_SUITE_P(Devices, Stress, ::testing::Values("cpu:f32", "opaque"), name_of);

}  // namespace
}  // namespace backplane
