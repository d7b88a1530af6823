#include "tests/unit/serving/requests.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

#include "core/engine/generation.h"
#include "tests/support/opaque_device.h"
#include "tests/support/trace.h"

namespace backplane::test {
namespace {

constexpr std::uint32_t kVocabulary = 96, kContext = 64;

void submit(engine::Service& service, ServedRequest& each) {
  const auto id = std::make_shared<std::atomic<std::int64_t>>(-1);
  const engine::RequestId given = service.submit(each.request, [&each, &service, id](const engine::Event& event) {
    ServedAnswer& answer = each.answers.at(event.answer);
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

}  // namespace

void fill(std::vector<ServedRequest>& requests, std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto lengths = trace_lengths(requests.size(), random);
  std::vector<TokenId> common(16);
  for (TokenId& id : common) id = static_cast<TokenId>(random() % kVocabulary);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    engine::Request& request = requests[i].request;
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
    if (random() % 5 == 0) requests[i].cancel_after = static_cast<int>(random() % 12);
    requests[i].answers.resize(request.n);
  }
}

models::LoadOptions crowded() {
  return {.context = kContext,
          .max_sequences = 12,
          .kv_tokens = kContext + 36,
          .max_step_tokens = 48,
          .page_size = 4,
          .executor = {}};
}

engine::ServiceOptions crowded_service(std::size_t max_requests) {
  return {.engine = {.max_sequences = 12, .token_budget = 48, .headroom = 0}, .max_requests = max_requests};
}

std::unique_ptr<models::LoadedModel> load(const std::string& device, const std::filesystem::path& file,
                                          const models::LoadOptions& options) {
  const auto opened = device == "opaque" ? open_opaque() : open_device(device);
  return models::load(models::ModelFile(file), opened, open_device("cpu:f32"), options);
}

std::vector<std::vector<ServedAnswer>> serial(const std::string& device, const std::filesystem::path& file,
                                              const std::vector<ServedRequest>& requests) {
  const auto model = load(device, file, {});
  engine::Engine engine(*model, {.max_sequences = 1, .prefix_cache = false});
  std::vector<std::vector<ServedAnswer>> out;
  for (const ServedRequest& each : requests) {
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

void serve(engine::Service& service, std::vector<ServedRequest>& requests) {
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = t; i < requests.size(); i += 4) submit(service, requests[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  service.drain();
}

Counts compare(const std::vector<ServedRequest>& requests, const std::vector<std::vector<ServedAnswer>>& want) {
  Counts counts;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    for (std::size_t k = 0; k < want[i].size(); ++k) {
      ServedAnswer whole = want[i][k];
      const ServedAnswer& answer = requests[i].answers[k];
      if (answer.finish == engine::FinishReason::kCanceled) {
        ++counts.canceled;
        EXPECT_GE(requests[i].cancel_after, 0) << i;
        whole.ids.resize(std::min(answer.ids.size(), whole.ids.size()));
        whole.logprobs.resize(whole.ids.size());
        whole.finish = engine::FinishReason::kCanceled;
      }
      counts.wrong += answer.finish != whole.finish || answer.ids != whole.ids || answer.logprobs != whole.logprobs;
    }
  }
  return counts;
}

void expect_all_ended(engine::Service& service, const std::vector<ServedRequest>& requests) {
  const engine::ServiceStats stats = service.between_steps([&](engine::Engine& engine) {
    EXPECT_EQ(engine.fault(), "");
    return service.stats();
  });
  ASSERT_EQ(stats.pages.size(), 1u);
  const kv::PoolCounts pages = stats.pages[0];
  EXPECT_EQ(pages.held, 0u);
  EXPECT_EQ(pages.free + pages.cached + pages.held, pages.total);
  EXPECT_EQ(stats.open, 0u);
  EXPECT_EQ(stats.failed, 0u);
  EXPECT_EQ(stats.stopped + stats.length + stats.failed + stats.canceled,
            std::accumulate(requests.begin(), requests.end(), 0u,
                            [](unsigned n, const ServedRequest& each) { return n + each.request.n; }));
}

}  // namespace backplane::test
