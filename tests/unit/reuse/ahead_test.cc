// Steps that are left to the device give what steps that are waited for give, whatever happens in between.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <utility>

#include "core/base/error.h"
#include "core/engine/session.h"
#include "tests/support/wrapped_model.h"
#include "tests/unit/reuse/answers.h"

namespace backplane {
namespace {

using engine::Engine;
using engine::EngineOptions;
using engine::Event;
using engine::FinishReason;
using engine::Request;
using engine::RequestId;

// Counts the steps that are left, and fails where it is told to.
class CountingModel : public test::WrappedModel {
 public:
  explicit CountingModel(engine::Model& model) : WrappedModel(model), inner_(model) {}

  bool can_pick() const override { return inner_.can_pick(); }
  void begin_pick(const sched::Step& step, std::span<const std::int32_t> targets) override {
    ++(targets.empty() ? begun : ahead);
    if (begun + ahead == fail_begin) throw Error(ErrorCode::kDevice, "a step was refused");
    inner_.begin_pick(step, targets);
  }
  std::vector<engine::Pick> end_pick() override {
    if (++ended == fail_end || fail_ends) throw Error(ErrorCode::kDevice, "a step broke");
    std::vector<engine::Pick> picks = inner_.end_pick();
    if (ended == break_row) picks.front().logit = std::numeric_limits<double>::quiet_NaN();
    return picks;
  }
  void abandon_picks() noexcept override { inner_.abandon_picks(); }
  void copy_pages(std::uint32_t group, std::span<const std::int32_t> from, std::span<const std::int32_t> to) override {
    if (++copied == fail_copy) throw Error(ErrorCode::kDevice, "a copy was refused");
    inner_.copy_pages(group, from, to);
  }

  std::uint64_t begun = 0, ahead = 0, ended = 0, copied = 0;
  std::uint64_t fail_begin = 0, fail_end = 0, break_row = 0, fail_copy = 0;  // the how many-th call; 0: none
  bool fail_ends = false;                                                    // all from the first on

 private:
  engine::Model& inner_;
};

struct Told {
  Ids ids;
  FinishReason finish = FinishReason::kNone;
  bool operator==(const Told&) const = default;
};
void PrintTo(const Told& told, std::ostream* out) {
  *out << testing::PrintToString(told.ids) << " " << static_cast<int>(told.finish);
}
using AllTold = std::map<Key, Told>;

Request greedy(Ids prompt, std::uint32_t tokens = 12) {
  Request asked = request(std::move(prompt), tokens);
  asked.sampling.temperature = 0;
  asked.top_logprobs.reset();
  return asked;
}

class Ahead : public testing::Test {
 protected:
  Ahead() : path_(test::write_tiny_llama(folder_)), model_(load()) {}

  std::unique_ptr<models::LoadedModel> load() const {
    models::LoadOptions options;
    options.max_sequences = 4;
    options.max_step_tokens = 48;
    options.page_size = 4;
    options.kv_tokens = kv_tokens_;
    options.executor = test::policy(device::FallbackPolicy::kAllow);
    return models::load(models::ModelFile(path_), test::open_opaque(), test::open_device("cpu:f32"), options);
  }

  // What all requests were told. `act` is called before each step with its number.
  using Act = std::function<void(Engine&, std::uint64_t)>;
  AllTold run(EngineOptions options, const Act& act) {
    counting_ = std::make_unique<CountingModel>(*model_);
    counting_->fail_begin = fail_begin_;
    counting_->fail_end = fail_end_;
    counting_->break_row = break_row_;
    counting_->fail_copy = fail_copy_;
    counting_->fail_ends = fail_ends_;
    Engine engine(*counting_, options);
    AllTold told;
    for (std::uint64_t step = 0; step == 0 || !engine.idle(); ++step) {
      act(engine, step);
      for (const Event& event : engine.step()) {
        Told& one = told[{event.request, event.answer}];
        EXPECT_EQ(one.finish, FinishReason::kNone) << "an event after the end";
        if (event.token >= 0) one.ids.push_back(event.token);
        one.finish = event.finish;
      }
      EXPECT_EQ(engine.fault(), "");
    }
    EXPECT_EQ(engine.pages(0).held, 0u);
    return told;
  }
  void expect_same(const Act& act) {
    const AllTold waited = run({.run_ahead = false}, act);
    EXPECT_EQ(counting_->begun, 0u);
    EXPECT_EQ(run({}, act), waited);
  }

  test::TempFolder folder_;
  std::filesystem::path path_;
  std::uint64_t kv_tokens_ = 0;
  std::unique_ptr<models::LoadedModel> model_;
  std::unique_ptr<CountingModel> counting_;
  std::uint64_t fail_begin_ = 0, fail_end_ = 0, break_row_ = 0, fail_copy_ = 0;
  bool fail_ends_ = false;
};

TEST_F(Ahead, SequencesOfManyLengths) {
  expect_same([](Engine& engine, std::uint64_t step) {
    if (step > 0) return;
    for (std::uint32_t i = 0; i < 3; ++i) engine.submit(greedy(test::tokens_of(3 + 5 * i, i), 5 + 7 * i));
  });
  EXPECT_EQ(counting_->begun, 1u) << "all but the first step of decoding are begun while one is under way";
  EXPECT_EQ(counting_->ahead, 17u)
      << "the longest has one token of its prompt's step, and one of the step before these";
}

TEST_F(Ahead, ArrivalsInterruptIt) {
  expect_same([](Engine& engine, std::uint64_t step) {
    if (step % 4 == 0 && step < 24) engine.submit(greedy(test::tokens_of(2 + step, step), 9));
  });
  EXPECT_GT(counting_->begun, 1u);
  EXPECT_GT(counting_->ahead, counting_->begun);
}

TEST_F(Ahead, EndsThatNobodyKnewOf) {
  const auto prompts = [](Engine& engine, std::uint64_t step, std::vector<TokenId> stop) {
    for (std::uint64_t i = 0; step == 0 && i < 3; ++i) {
      Request asked = greedy(test::tokens_of(4 + i, i), 20);
      asked.stop_ids = stop;
      engine.submit(asked);
    }
  };
  const AllTold free = run({.run_ahead = false}, [&](Engine& e, std::uint64_t step) { prompts(e, step, {}); });
  for (const std::size_t place : {1u, 2u, 7u}) {
    const TokenId stop = free.begin()->second.ids[place];
    expect_same([&](Engine& e, std::uint64_t step) { prompts(e, step, {stop}); });
    EXPECT_GT(counting_->ahead, 0u);
  }
}

TEST_F(Ahead, CancellationsLeaveTheOthersAlone) {
  for (const std::uint64_t when : {1u, 2u, 3u, 6u}) {
    expect_same([&](Engine& engine, std::uint64_t step) {
      for (std::uint64_t i = 0; step == 0 && i < 3; ++i) engine.submit(greedy(test::tokens_of(4 + i, i)));
      if (step != when) return;
      EXPECT_TRUE(engine.cancel(RequestId{1}));
    });
  }
  expect_same([&](Engine& engine, std::uint64_t step) {
    if (step == 0) engine.submit(greedy(test::tokens_of(4, 1)));
    if (step != 5) return;
    EXPECT_TRUE(engine.cancel(RequestId{0})) << "the only one";
    engine.submit(greedy(test::tokens_of(6, 2)));
  });
}

TEST_F(Ahead, WhatIsDrawnOrReportedIsWaitedFor) {
  for (const auto& change : std::initializer_list<std::function<void(Request&)>>{
           [](Request& r) { r.sampling.temperature = 1; }, [](Request& r) { r.top_logprobs = 2; },
           [](Request& r) {
             r.sampling.logit_bias = {{3, 1.0}};
           },
           [](Request& r) { r.sampling.bad_words = {{5}}; }, [](Request& r) { r.sampling.presence_penalty = 0.5; }}) {
    expect_same([&](Engine& engine, std::uint64_t step) {
      if (step > 0) return;
      Request asked = greedy(test::tokens_of(4, 1));
      change(asked);
      engine.submit(asked);
      engine.submit(greedy(test::tokens_of(7, 2), 6));
    });
    EXPECT_EQ(counting_->begun, 0u);
  }
}

TEST_F(Ahead, SeveralAnswersShareAPrompt) {
  expect_same([](Engine& engine, std::uint64_t step) {
    Request asked = greedy(test::tokens_of(6, 1));
    asked.n = 3;
    if (step == 0) engine.submit(asked);
  });
  EXPECT_GT(counting_->ahead, 0u);
}

TEST_F(Ahead, PagesRunOut) {
  kv_tokens_ = 64;
  model_ = load();
  const auto act = [](Engine& engine, std::uint64_t step) {
    for (std::uint64_t i = 0; step == 0 && i < 3; ++i) engine.submit(greedy(test::tokens_of(8, i), 24));
  };
  const AllTold waited = run({.headroom = 1, .run_ahead = false}, act);
  EXPECT_EQ(run({.headroom = 1}, act), waited);
}

TEST_F(Ahead, FailuresAreRunAgain) {
  const auto act = [](Engine& engine, std::uint64_t step) {
    for (std::uint64_t i = 0; step == 0 && i < 3; ++i) engine.submit(greedy(test::tokens_of(4 + i, i), 9 + i));
  };
  const AllTold waited = run({.run_ahead = false}, act);
  for (std::uint64_t call = 1; call < 8; ++call) {
    fail_begin_ = call;
    EXPECT_EQ(run({}, act), waited) << "begin " << call;
    fail_begin_ = 0;
    fail_end_ = call;
    EXPECT_EQ(run({}, act), waited) << "end " << call;
    fail_end_ = 0;
  }
}

TEST_F(Ahead, AFailureThatLastsEndsIt) {
  const auto act = [](Engine& engine, std::uint64_t step) {
    if (step == 0) engine.submit(greedy(test::tokens_of(4, 1), 12));
  };
  const AllTold waited = run({.run_ahead = false}, act);
  fail_ends_ = true;
  EXPECT_EQ(run({}, act), waited);
  EXPECT_EQ(counting_->ended, 3u) << "then it isn't tried any more";
}

TEST_F(Ahead, ACopyOfPagesThatFailsIsMadeAgain) {
  const auto act = [](Engine& engine, std::uint64_t step) {
    Request asked = greedy(test::tokens_of(6, 1));
    asked.n = 3;
    if (step == 0) engine.submit(asked);
  };
  const AllTold waited = run({.run_ahead = false}, act);
  fail_copy_ = 1;
  EXPECT_EQ(run({}, act), waited);
  EXPECT_GT(counting_->copied, 1u);
}

// One that waits takes the place of one that was canceled while a step was under way, which then fails.
TEST_F(Ahead, AnotherTakesThePlaceOfAFailedStep) {
  fail_end_ = 3;
  AllTold told = run({}, [](Engine& engine, std::uint64_t step) {
    if (step == 0) engine.submit(greedy(test::tokens_of(4, 1)));
    if (step != 3) return;
    engine.cancel(RequestId{0});
    engine.submit(greedy(test::tokens_of(6, 2), 5));
  });
  EXPECT_EQ(counting_->ended, 3u + 4) << "the failure came, and the other one's steps";
  EXPECT_EQ((told[{RequestId{1}, 0}].finish), FinishReason::kLength);
}

TEST_F(Ahead, PromptsAreReportedWithTheFirstToken) {
  for (const bool ahead : {false, true}) {
    Engine engine(*model_, {.token_budget = 5, .run_ahead = ahead});
    Request asked = greedy(test::tokens_of(6, 1), 4);  // the last token of the prompt is a step of its own
    asked.prompt_logprobs = 0;
    engine.submit(asked);
    std::size_t reported = 0;
    while (!engine.idle()) {
      for (const Event& event : engine.step()) reported += event.prompt.size();
    }
    EXPECT_EQ(reported, 5u) << ahead;
  }
}

// The end of a text leaves a step under way that nobody wants. What the device has recorded serves the next text.
TEST_F(Ahead, RecordingsOutliveATextsEnd) {
  Engine engine(*model_, {});
  const auto answer = [&](std::vector<TokenId> stop) {
    Request asked = greedy(test::tokens_of(4, 1), 12);
    asked.stop_ids = std::move(stop);
    engine.submit(asked);
    Ids ids;
    while (!engine.idle()) {
      for (const Event& event : engine.step()) ids.push_back(event.token);
    }
    return ids;
  };
  const Ids all = answer({});
  answer({all[7]});
  const std::uint64_t recorded = model_->executor().captures().recorded;
  EXPECT_GT(recorded, 0u);
  EXPECT_EQ(answer({all[7]}).size(), 8u);
  EXPECT_EQ(model_->executor().captures().recorded, recorded);
}

TEST_F(Ahead, ALogitThatIsNoneEndsItsRequest) {
  const auto act = [](Engine& engine, std::uint64_t step) {
    for (std::uint64_t i = 0; step == 0 && i < 2; ++i) engine.submit(greedy(test::tokens_of(4 + i, i)));
  };
  AllTold told = run({}, act);
  const Told other = told[{RequestId{1}, 0}];
  break_row_ = 3;
  told = run({}, act);
  EXPECT_EQ((told[{RequestId{0}, 0}].finish), FinishReason::kError);
  EXPECT_EQ((told[{RequestId{0}, 0}].ids.size()), 3u) << "of the prompt, and of two steps";
  EXPECT_EQ((told[{RequestId{1}, 0}]), other);
}

TEST_F(Ahead, ConversationsGoOnFromWhatIsLeft) {
  const auto turns = [&](bool ahead) {
    Engine engine(*model_, {.run_ahead = ahead});
    engine::Session session(engine);
    Ids text = test::tokens_of(5, 1);
    std::vector<std::uint64_t> cached;
    for (int turn = 0; turn < 3; ++turn) {
      const auto answer = session.generate(greedy(text, 7));
      cached.push_back(session.cached());
      text.insert(text.end(), answer.ids.begin(), answer.ids.end());
      text.push_back(9);
    }
    return std::pair{text, cached};
  };
  EXPECT_EQ(turns(true), turns(false));
}

}  // namespace
}  // namespace backplane
