#include "core/engine/session.h"

#include <gtest/gtest.h>

#include <deque>

#include "tests/unit/engine/engine_fixture.h"

namespace backplane::engine {
namespace {

Request turn(const std::vector<TokenId>& tokens, std::uint32_t n = 5) { return {.prompt = tokens, .max_tokens = n}; }

void append(std::vector<TokenId>& to, const std::vector<TokenId>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

TEST(Session, ComputesOnlyWhatIsNew) {
  FakeModel model;
  Engine engine(model);
  Session session(engine);
  auto talk = some_tokens(20, 1);
  std::uint64_t in_cache = 0;
  for (std::uint32_t i = 0; i < 5; ++i) {
    const Generation reply = session.generate(turn(talk));
    EXPECT_EQ(reply.ids, model.greedy(talk, 5));
    EXPECT_EQ(session.reused(), in_cache);
    EXPECT_EQ(reply.steps.front().cached, in_cache);
    EXPECT_EQ(reply.steps.front().tokens, talk.size() - in_cache);
    in_cache = talk.size() + 4;  // the last token chosen has not been computed
    EXPECT_EQ(session.cached(), in_cache);
    append(talk, reply.ids);
    append(talk, some_tokens(7, 100 + i));
  }
}

TEST(Session, GoesBackToTheCommonPrefix) {
  FakeModel model;
  Engine engine(model);
  Session session(engine);
  auto talk = some_tokens(20, 1);
  session.generate(turn(talk));
  talk.resize(13);
  talk.back() = (talk.back() + 1) % 23;
  EXPECT_EQ(session.generate(turn(talk)).ids, model.greedy(talk, 5));
  EXPECT_EQ(session.reused(), 12u);
  const auto other = some_tokens(9, 2);
  EXPECT_EQ(session.generate(turn(other)).ids, model.greedy(other, 5));
}

TEST(Session, TheSamePromptAgainComputesOneToken) {
  FakeModel model;
  Engine engine(model);
  Session session(engine);
  const auto talk = some_tokens(20, 1);
  const auto first = session.generate(turn(talk));
  const auto again = session.generate(turn(talk));
  EXPECT_EQ(again.ids, first.ids);
  EXPECT_EQ(session.reused(), 19u);
}

// However many: what each has in the cache is known without a look.
TEST(Session, ManyGoOnInOneStep) {
  constexpr std::uint32_t kMany = 300;
  FakeModel model({.max_step_tokens = kMany, .max_step_sequences = kMany, .pages = {2 * kMany}});
  Engine engine(model, {.max_sequences = kMany, .token_budget = kMany, .headroom = EngineOptions::kNoPreemption});
  std::deque<Session> sessions;
  for (std::uint32_t i = 0; i < kMany; ++i) sessions.emplace_back(engine).generate(turn(some_tokens(5, i), 1));
  std::map<RequestId, std::vector<TokenId>> expected;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    const auto talk = some_tokens(6, i);
    expected[sessions[i].submit(turn(talk, 2))] = model.greedy(talk, 2);
  }
  Outcomes outcomes;
  for (std::uint64_t cached = 5; !engine.idle(); ++cached) {
    collect(outcomes, engine.step());
    EXPECT_EQ(engine.steps().records().back().n_decode, kMany);
    EXPECT_EQ(engine.steps().records().back().cached, kMany * cached);
  }
  for (const auto& [id, ids] : expected) EXPECT_EQ(outcomes[id].ids, ids);
}

TEST(Session, BehindAWindowNothingWrongIsReused) {
  FakeModel model({.windows = {0, 6}, .pages = {50, 10}});
  Engine engine(model, {.token_budget = 8});
  Session session(engine);
  auto talk = some_tokens(40, 1);
  int reused = 0;
  for (std::uint32_t i = 0; i < 40; ++i) {
    const Generation reply = session.generate(turn(talk));
    ASSERT_EQ(reply.ids, model.greedy(talk, 5)) << i;
    reused += session.reused() > 0;
    append(talk, reply.ids);
    append(talk, some_tokens(3, i));
    if (i % 3 == 2) talk.resize(talk.size() - 1 - i % 17);
    if (talk.size() > 120) talk.resize(30);
  }
  EXPECT_GT(reused, 20);
  EXPECT_LT(reused, 40);
}

TEST(Session, OtherRopeFactorsMakeTheCacheUseless) {
  FakeModel model({.long_from = 40});
  Engine engine(model);
  Session session(engine);
  const auto talk = some_tokens(20, 1);
  session.generate(turn(talk));
  EXPECT_EQ(session.generate(turn(talk, 25)).ids, model.greedy(talk, 25, 45));
  EXPECT_EQ(session.reused(), 0u);
  EXPECT_EQ(session.generate(turn(talk, 25)).ids, model.greedy(talk, 25, 45));
  EXPECT_EQ(session.reused(), 19u);
  EXPECT_EQ(session.generate(turn(talk, 22)).ids, model.greedy(talk, 22, 42));
  EXPECT_EQ(session.reused(), 0u);
  EXPECT_EQ(model.rope_rows_held(), 1);
}

TEST(Session, MakesDoWithOneRopeRow) {
  FakeModel model({.long_from = 1, .rope_rows = 1});
  Engine engine(model);
  Session session(engine), other(engine);
  auto talk = some_tokens(10, 1);
  for (int i = 0; i < 4; ++i) {  // every turn is planned for another length
    const Generation reply = session.generate(turn(talk));
    EXPECT_EQ(reply.ids, model.greedy(talk, 5, talk.size() + 5));
    append(talk, reply.ids);
    EXPECT_EQ(other.generate(turn(talk, 3)).ids, model.greedy(talk, 3, talk.size() + 3));
  }
}

TEST(Session, ACanceledTurnKeepsWhatItHadComputed) {
  FakeModel model;
  Engine engine(model, {.token_budget = 8});
  Session session(engine);
  auto talk = some_tokens(30, 1);
  const RequestId id = session.submit(turn(talk));
  engine.step();
  engine.step();
  EXPECT_THROW(session.submit(turn(talk)), Error);
  engine.cancel(id);
  engine.step();
  EXPECT_EQ(session.cached(), 16u);
  EXPECT_EQ(session.generate(turn(talk)).ids, model.greedy(talk, 5));
  EXPECT_EQ(session.reused(), 16u);
}

TEST(Session, AFailedTurnKeepsOnlyWhatIsSound) {
  FakeModel model;
  Engine engine(model, {.token_budget = 8});
  Session session(engine);
  const auto talk = some_tokens(30, 1);
  int step = 0;
  model.after_step = [&](const sched::Step&, Logits&) {
    if (++step == 3) throw Error(ErrorCode::kDevice, "hiccup");
  };
  EXPECT_EQ(session.generate(turn(talk)).finish, FinishReason::kError);
  EXPECT_EQ(session.cached(), 16u);
  EXPECT_EQ(engine.pages(0).held, 4u);
  EXPECT_EQ(session.generate(turn(talk)).ids, model.greedy(talk, 5));
}

TEST(Session, ARefusedTurnChangesNothing) {
  FakeModel model({.pages = {10}});
  Engine engine(model);
  Session session(engine);
  const auto talk = some_tokens(30, 1);
  session.generate(turn(talk));
  EXPECT_THROW(session.submit(turn(some_tokens(41, 1))), Error);
  EXPECT_EQ(session.cached(), 34u);
  EXPECT_EQ(session.generate(turn(talk)).ids, model.greedy(talk, 5));
}

TEST(Session, AnIdleSessionYieldsItsPages) {
  FakeModel model({.pages = {10}});
  Engine engine(model);
  Session old(engine), recent(engine);
  const auto a = some_tokens(12, 1), b = some_tokens(12, 2), c = some_tokens(20, 3);
  old.generate(turn(a));
  recent.generate(turn(b));
  EXPECT_EQ(engine.pages(0).held, 8u);
  EXPECT_EQ(generate(engine, turn(c, 4)).ids, model.greedy(c, 4));
  EXPECT_EQ(old.cached(), 0u);
  EXPECT_EQ(recent.cached(), 16u);
  EXPECT_EQ(old.generate(turn(a)).ids, model.greedy(a, 5));
}

TEST(Session, WaitingTurnsYieldToTheFirst) {
  FakeModel model({.pages = {10}});
  Engine engine(model);
  Session x(engine), y(engine);
  auto a = some_tokens(12, 1), b = some_tokens(12, 2);
  append(a, x.generate(turn(a)).ids);
  append(b, y.generate(turn(b)).ids);
  append(a, some_tokens(20, 3));  // 37 tokens: nearly the whole pool, of which y holds 4 pages
  append(b, some_tokens(20, 4));
  const RequestId first = x.submit(turn(a, 2)), second = y.submit(turn(b, 2));
  Outcomes outcomes = run_to_end(engine);
  EXPECT_EQ(outcomes[first].ids, model.greedy(a, 2));
  EXPECT_EQ(outcomes[second].ids, model.greedy(b, 2));
}

TEST(Session, MayEndBeforeItsRequest) {
  FakeModel model;
  Engine engine(model);
  const auto talk = some_tokens(12, 1);
  RequestId id{};
  {
    Session session(engine);
    session.generate(turn(talk));
    id = session.submit(turn(talk));
  }
  EXPECT_EQ(run_to_end(engine).at(id).ids, model.greedy(talk, 5));
  EXPECT_TRUE(all_pages_free(engine));
  EXPECT_EQ(model.rope_rows_held(), 0);
}

}  // namespace
}  // namespace backplane::engine
