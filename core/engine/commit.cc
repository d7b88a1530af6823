// The engine after a step: tokens, text, ends.
#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/engine/engine.h"

namespace backplane::engine {
namespace {

bool contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

void Engine::commit(std::span<const sched::Share> shares, const Logits& logits, std::vector<Event>& events) {
  draws_.clear();
  std::uint32_t row = 0;
  for (const sched::Share& share : shares) add_draws(share, logits, row);
  drawer_.run(draws_);
  std::span<Draw> left = draws_;
  for (const sched::Share& share : shares) {
    const auto [begin, end] = share.rows();
    const std::size_t count = end - begin + (share.logits ? 1 : 0);
    commit(share, left.first(count), events);
    left = left.subspan(count);
  }
}

// `row`: the share's first one; moved to the next share's.
void Engine::add_draws(const sched::Share& share, const Logits& logits, std::uint32_t& row) {
  const Active& active = static_cast<const Active&>(*share.sequence);
  const Request& request = active.task->request;
  const auto [begin, end] = share.rows();
  for (std::uint64_t p = begin; p < end; ++p) {
    draws_.push_back({.logits = logits.row(row++), .top = request.prompt_logprobs, .token = active.tokens[p + 1]});
  }
  if (!share.logits) return;
  draws_.push_back({.logits = logits.row(row++), .sampler = &active.sampler, .top = request.top_logprobs});
}

void Engine::commit(const sched::Share& share, std::span<Draw> draws, std::vector<Event>& events) {
  Active& active = static_cast<Active&>(*share.sequence);
  scheduler_.commit(share);
  try {
    for (Draw& drawn : draws.first(draws.size() - (share.logits ? 1 : 0))) {
      if (drawn.error) throw Error(*drawn.error);
      active.prompt.push_back(std::move(drawn.report));
    }
    if (!share.logits) return;
    events.push_back(advance(active, draws.back()));
    if (active.generated == 1 && active.answer == 0) fork(active, draws.back().logits, events);
  } catch (const Error& error) {  // of this row only
    active.broken = true;
    end(active, FinishReason::kError, &error, events);
  }
}

// The further answers to a request whose prompt is computed and whose first answer has its first token. They share its
// pages, and go on when there are seats for them.
void Engine::fork(Active& first, std::span<const double> logits, std::vector<Event>& events) {
  Answers& answers = requests_.at(first.task->id);
  std::vector<Draw> draws;
  for (std::uint32_t i = 1; i < first.task->request.n; ++i) {
    answers.push_back(std::make_unique<Active>(first.task, i, options_));
    Active& active = *answers.back();
    active.kv = book_.fork(first.kv);
    active.computed = first.computed;
    active.rows_begin = active.rows_end;
    scheduler_.add(active);
    draws.push_back({.logits = logits, .sampler = &active.sampler, .top = first.task->request.top_logprobs});
  }
  drawer_.run(draws);
  for (std::size_t i = 0; i < draws.size(); ++i) {
    Active& active = *answers[i + 1];
    try {
      active.rope_row = runner_.model().acquire_rope_row(first.task->allowance.planned_length);
      active.ready = true;
      events.push_back(advance(active, draws[i]));
    } catch (const Error& error) {
      end(active, FinishReason::kError, &error, events);
    }
  }
}

// Throws what the draw failed with.
Event Engine::advance(Active& active, Draw& drawn) {
  if (drawn.error) throw Error(*drawn.error);
  const Request& request = active.task->request;
  Event event{.request = active.task->id, .answer = active.answer, .token = drawn.token, .text = {}};
  event.prompt = std::exchange(active.prompt, {});
  if (request.top_logprobs) {
    event.logprob = drawn.report.logprob;
    event.top = std::move(drawn.report.top);
  }
  active.tokens.push_back(event.token);
  active.sampler.accept(event.token);
  ++active.generated;
  if (contains(request.stop_ids, event.token) || (!request.ignore_eos && contains(request.eos_ids, event.token))) {
    event.finish = FinishReason::kStop;  // the token itself is no part of the text
  } else {
    event.text = active.text.push(event.token, active.generated > request.min_tokens);
    if (active.text.stopped()) {
      event.finish = FinishReason::kStop;
    } else if (active.generated == active.task->allowance.max_tokens) {
      event.finish = FinishReason::kLength;
    }
  }
  if (event.finish != FinishReason::kNone) event.text += active.text.flush();
  return event;
}

// An end without a token. Answers that have not begun end with the first one.
void Engine::end(Active& active, FinishReason reason, const Error* error, std::vector<Event>& events) {
  const std::uint32_t count = active.generated == 0 && active.answer == 0 ? active.task->request.n : 1;
  for (std::uint32_t i = 0; i < count; ++i) {
    Event event{.request = active.task->id, .answer = active.answer + i, .text = {}, .finish = reason};
    if (i == 0) event.text = active.text.flush();
    if (error) event.error = *error;
    events.push_back(std::move(event));
  }
}

}  // namespace backplane::engine
