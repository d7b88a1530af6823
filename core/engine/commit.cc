// The engine after a step: tokens, text, ends.
#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/engine/engine.h"
#include "core/sample/logprobs.h"

namespace backplane::engine {
namespace {

bool contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

void Engine::commit(std::span<const sched::Share> shares, const Logits& logits, std::vector<Event>& events) {
  std::uint32_t row = 0;
  for (const sched::Share& share : shares) commit(share, logits, row, events);
}

// `row`: the share's first one; moved to the next share's.
void Engine::commit(const sched::Share& share, const Logits& logits, std::uint32_t& row, std::vector<Event>& events) {
  Active& active = static_cast<Active&>(*share.sequence);
  const std::uint64_t begin = active.rows_begin;
  scheduler_.commit(share);
  const std::uint32_t first = row, of_prompt = static_cast<std::uint32_t>(active.rows_begin - begin);
  row += of_prompt + (share.logits ? 1 : 0);
  try {
    for (std::uint32_t i = 0; i < of_prompt; ++i) {
      const auto of_row = logits.row(first + i);
      sample::check_logits(of_row);
      active.prompt.push_back(
          sample::report_token(of_row, active.tokens[begin + i + 1], *active.task->request.prompt_logprobs));
    }
    if (!share.logits) return;
    const auto last = logits.row(row - 1);
    Event event = advance(active, last);
    event.prompt = std::exchange(active.prompt, {});
    events.push_back(std::move(event));
    if (active.generated == 1 && active.answer == 0) fork(active, last, events);
  } catch (const Error& error) {  // of this row only
    active.broken = true;
    end(active, FinishReason::kError, &error, events);
  }
}

// The further answers to a request whose prompt is computed and whose first answer has its first token. They share its
// pages, and go on when there are seats for them.
void Engine::fork(Active& first, std::span<const double> logits, std::vector<Event>& events) {
  Answers& answers = requests_.at(first.task->id);
  for (std::uint32_t i = 1; i < first.task->request.n; ++i) {
    answers.push_back(std::make_unique<Active>(first.task, i, options_));
    Active& active = *answers.back();
    active.kv = book_.fork(first.kv);
    active.computed = first.computed;
    active.rows_begin = active.rows_end;
    scheduler_.add(active);
    try {
      active.rope_row = runner_.model().acquire_rope_row(first.task->allowance.planned_length);
      active.ready = true;
      events.push_back(advance(active, logits));
    } catch (const Error& error) {
      end(active, FinishReason::kError, &error, events);
    }
  }
}

Event Engine::advance(Active& active, std::span<const double> logits) {
  const Request& request = active.task->request;
  Event event{.request = active.task->id, .answer = active.answer, .token = active.sampler.sample(logits), .text = {}};
  if (request.top_logprobs) {
    sample::TokenReport report = sample::report_token(logits, event.token, *request.top_logprobs);
    event.logprob = report.logprob;
    event.top = std::move(report.top);
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
