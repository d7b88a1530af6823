// All running requests move to another device between two steps, and no one notices.
#include <map>

#include "core/engine/service.h"
#include "models/failover_model.h"
#include "tests/support/tiny_hf_model.h"
#include "tests/unit/device/runs.h"

namespace backplane {
namespace {

using models::FailoverModel;

struct Told {
  std::map<std::uint64_t, std::vector<std::pair<TokenId, double>>> tokens;  // by request, with log-probabilities
  std::uint64_t computed = 0;                                               // tokens, in all steps
  std::size_t moves = 0;
};

class MoveTest : public testing::Test {
 protected:
  MoveTest() : path_(test::write_tiny_hf(folder_, test::TinyHf::kQwen2)), file_(path_) {
    options_.max_sequences = 4;
    options_.max_step_tokens = 20;
    options_ = models::resolve(options_, file_.spec(), {test::open_opaque(), test::open_device("cpu:f32")});
  }

  std::unique_ptr<models::LoadedModel> load(const std::string& device) const {
    auto chosen = device.starts_with("opaque") ? test::open_opaque(device) : test::open_device(device);
    return models::load(file_, std::move(chosen), test::open_device("cpu:f32"), options_);
  }

  // Three requests; before the steps in `moves` the model goes to the device named there.
  Told run(const std::string& first, const std::map<int, std::string>& moves) const {
    FailoverModel model(load(first), {});
    engine::Engine engine(model, {.max_sequences = 4, .token_budget = 16});
    Told told;
    for (const std::uint32_t seed : {3u, 4u, 5u}) {
      engine::Request request;
      request.prompt = test::tokens_of(9 + 4 * seed, seed);
      request.sampling.temperature = seed == 4 ? 0.9 : 0;
      request.sampling.seed = 7;
      request.max_tokens = 14;
      request.ignore_eos = true;
      request.top_logprobs = 0;
      engine.submit(std::move(request));
    }
    for (int step = 0; !engine.idle(); ++step) {
      const auto move = moves.find(step);
      if (move != moves.end()) {
        std::vector<std::vector<std::int32_t>> pages;
        for (std::uint32_t g = 0; g < engine.groups(); ++g) pages.push_back(engine.pages_in_use(g));
        model.move_to(load(move->second), pages);
        EXPECT_GT(engine.running(), 0u);
        ++told.moves;
      }
      for (const engine::Event& event : engine.step()) {
        if (event.error) throw *event.error;
        told.tokens[static_cast<std::uint64_t>(event.request)].emplace_back(event.token, event.logprob.value());
      }
    }
    for (const engine::StepRecord& record : engine.steps().records()) told.computed += record.tokens;
    return told;
  }

  test::TempFolder folder_;
  std::filesystem::path path_;
  models::ModelFile file_;
  models::LoadOptions options_;
};

TEST_F(MoveTest, BetweenDevicesOfOneKindNoBitChanges) {
  for (const std::string device : {"cpu:f32", "cpu:f64", "opaque:f32", "opaque:f16"}) {
    SCOPED_TRACE(device);
    const Told still = run(device, {});
    ASSERT_EQ(still.tokens.size(), 3u);
    const Told moved = run(device, {{1, device}, {2, device}, {5, device}, {9, device}});
    EXPECT_EQ(moved.tokens, still.tokens);
    EXPECT_EQ(moved.moves, 4u);
    EXPECT_EQ(moved.computed, still.computed) << "nothing was computed again";
  }
}

TEST_F(MoveTest, BetweenUnlikeDevicesTheTokensStay) {
  const Told still = run("cpu:f32", {});
  const Told moved = run("cpu:f32", {{1, "opaque:f32"}, {4, "cpu:f64"}, {7, "opaque:f32"}, {10, "cpu:f32"}});
  ASSERT_EQ(moved.tokens.size(), still.tokens.size());
  for (const auto& [request, tokens] : still.tokens) {
    const auto& others = moved.tokens.at(request);
    ASSERT_EQ(others.size(), tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_EQ(others[i].first, tokens[i].first);
      EXPECT_NEAR(others[i].second, tokens[i].second, 1e-4);
    }
  }
  EXPECT_EQ(moved.computed, still.computed);
}

TEST_F(MoveTest, StaysWhereTheOtherIsNotAlike) {
  FailoverModel model(load("cpu:f32"), {});
  models::LoadOptions other = options_;
  other.page_size = 24;
  const auto cpu = test::open_device("cpu:f32");
  EXPECT_ERROR(model.move_to(models::load(file_, cpu, cpu, other), {}), ErrorCode::kUsage, "the device to move to");
  EXPECT_EQ(test::generate_two(model), test::generate_two(*load("cpu:f32")));
}

// While a service's thread is serving.
TEST_F(MoveTest, UnderAService) {
  FailoverModel still(load("cpu:f32"), {}), moving(load("cpu:f32"), {});
  const auto ask = [&](FailoverModel& model, bool move) {
    engine::Service service(model, {.engine = {.max_sequences = 4, .token_budget = 16}});
    std::vector<engine::EventStream> streams;
    for (const std::uint32_t seed : {3u, 4u, 5u, 6u, 7u}) {
      engine::Request request;
      request.prompt = test::tokens_of(20, seed);
      request.sampling.temperature = 0;
      request.max_tokens = 30;
      request.ignore_eos = true;
      streams.push_back(service.stream(std::move(request)));
    }
    for (int i = 0; move && i < 5; ++i) {
      auto next = load("cpu:f32");
      service.between_steps([&](engine::Engine& engine) {
        std::vector<std::vector<std::int32_t>> pages;
        for (std::uint32_t g = 0; g < engine.groups(); ++g) pages.push_back(engine.pages_in_use(g));
        model.move_to(std::move(next), pages);
      });
    }
    std::vector<TokenId> ids;
    for (engine::EventStream& stream : streams) {
      while (const auto event = stream.next()) {
        if (event->error) throw *event->error;
        ids.push_back(event->token);
      }
    }
    return ids;
  };
  EXPECT_EQ(ask(moving, true), ask(still, false));
}

}  // namespace
}  // namespace backplane
