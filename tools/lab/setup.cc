#include "tools/lab/setup.h"

#include <algorithm>
#include <limits>
#include <random>

#include "core/sample/sampler.h"
#include "core/text/utf8.h"
#include "tools/prompt.h"

namespace backplane::lab {
namespace {

// Any plain English does; this one has no rights of others in it.
constexpr std::string_view kText =
    "When a language model writes, it writes one token after another. To choose the next token it looks back at every "
    "token before it: for each of them it needs a key, by which that token is found, and a value, which is what that "
    "token has to say. Keys and values of a token depend only on what came before it, so they never change once they "
    "have been computed. A model that forgets them must compute the whole text again for every token that it adds, "
    "and the longer the text, the more there is to do again. A model that keeps them has to compute one token only. "
    "The place where they are kept is called the cache. It grows with every token, and it is read from end to end in "
    "every step, which is why long conversations become slower, though much less than they would without it. The "
    "first look at a question is different: all its tokens are known, so they can be computed together, and each part "
    "of the model that is fetched from memory serves all of them. Many people who ask at the same time can share this "
    "advantage, if their questions are answered in one batch, and if nobody has to wait for the longest answer. ";

}  // namespace

Prompts::Prompts(std::shared_ptr<const text::Tokenizer> tokenizer, std::uint32_t vocab_size, std::uint64_t seed)
    : tokenizer_(std::move(tokenizer)) {
  if (tokenizer_) {
    source_ = tokenizer_->encode(kText);
    const std::vector<TokenId> whole = tools::completion_prompt(*tokenizer_, kText);
    if (whole.size() > source_.size() && whole.front() == tokenizer_->bos()) first_.push_back(whole.front());
  }
  const auto usable = [&](TokenId id) { return id >= 0 && static_cast<std::uint32_t>(id) < vocab_size; };
  if (source_.empty() || !std::all_of(source_.begin(), source_.end(), usable)) {
    tokenizer_ = nullptr;
    first_.clear();
    std::mt19937_64 random(seed);
    source_.resize(997);  // a prime, so that prompts of different numbers meet late
    for (TokenId& id : source_) id = static_cast<TokenId>(random() % vocab_size);
  }
}

std::vector<TokenId> Prompts::ids(std::uint32_t tokens, std::uint32_t number) const {
  std::vector<TokenId> ids(first_.begin(), first_.begin() + std::min<std::size_t>(first_.size(), tokens));
  for (std::size_t at = std::size_t{number} * 37; ids.size() < tokens; ++at)
    ids.push_back(source_[at % source_.size()]);
  return ids;
}

std::string Prompts::text(const std::vector<TokenId>& ids) const {
  if (!tokenizer_) return {};
  std::string bytes;
  for (const TokenId id : ids) {
    if (static_cast<std::size_t>(id) < tokenizer_->vocab_size()) bytes += tokenizer_->token_bytes(id);
  }
  return text::to_valid_utf8(bytes);
}

Room measure_room(engine::Model& model) {
  const engine::Engine engine(model, {.max_sequences = 1});
  const engine::Limits& limits = engine.limits();
  return {.context = static_cast<std::uint32_t>(std::min(limits.context, limits.kv_longest)),
          .step_tokens = model.max_step_tokens(),
          .sequences = model.max_step_sequences()};
}

engine::Request greedy_request(std::vector<TokenId> prompt, std::uint32_t tokens) {
  engine::Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = tokens;
  request.ignore_eos = true;
  return request;
}

engine::Generation generate_greedy(engine::Engine& engine, std::vector<TokenId> prompt, std::uint32_t tokens,
                                   const engine::TokenCallback& on_event) {
  engine::Generation done = engine::generate(engine, greedy_request(std::move(prompt), tokens), on_event);
  if (done.error) throw *done.error;
  return done;
}

engine::EngineOptions measuring(std::uint32_t max_sequences, const Room& room) {
  engine::EngineOptions options;
  options.max_sequences = max_sequences;
  options.token_budget = room.step_tokens;
  options.prefix_cache = false;
  options.headroom = engine::EngineOptions::kNoPreemption;
  return options;
}

Scored score_whole(engine::Scorer& scorer, const std::vector<TokenId>& ids) {
  const engine::ScoreLine line{.ids = ids};
  Scored scored;
  const auto steps = scorer.score({&line, 1}, {}, [&](const engine::ScoredRows& rows) {
    scored.token = sample::argmax(rows.row(rows.positions.size() - 1));
  });
  scored.seconds = seconds_of(steps.at(0));
  return scored;
}

double seconds_of(const std::vector<engine::StepRecord>& steps) {
  double seconds = 0;
  for (const engine::StepRecord& step : steps) seconds += step.seconds;
  return seconds;
}

// The first run pays for what happens once; it is not counted. Of the others the fastest steps count: whatever else the
// machine does makes them slower, never faster.
Speed measure_speed(engine::Model& model, const Prompts& prompts, const Room& room) {
  engine::Engine engine(model, measuring(1, room));
  const std::uint32_t prompt = std::min({32u, room.context / 2, room.step_tokens});
  const auto run = [&] { return generate_greedy(engine, prompts.ids(prompt), 5).steps; };
  run();
  std::vector<engine::StepRecord> steps = run();
  const std::vector<engine::StepRecord> more = run();
  steps.insert(steps.end(), more.begin(), more.end());
  constexpr double kNone = std::numeric_limits<double>::infinity();
  Speed speed{.token_s = kNone, .step_s = kNone};
  for (const engine::StepRecord& step : steps) {
    double& fastest = step.n_decode > 0 ? speed.step_s : speed.token_s;
    fastest = std::min(fastest, step.seconds / step.tokens);
  }
  return speed;
}

}  // namespace backplane::lab
