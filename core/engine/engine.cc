#include "core/engine/engine.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace backplane::engine {
namespace {

std::vector<kv::GroupConfig> group_configs(const Model& model) {
  std::vector<kv::GroupConfig> groups;
  for (std::uint32_t g = 0; g < model.shape().groups.size(); ++g) {
    groups.push_back({model.shape().groups[g].window, model.pages(g)});
  }
  return groups;
}

EngineOptions clamped(EngineOptions options, const Model& model) {
  options.token_budget = std::min(options.token_budget, model.max_step_tokens());
  // Every running sequence has a token in every step, or the last ones would starve.
  options.max_sequences = std::min(options.max_sequences, options.token_budget);
  if (options.max_sequences == 0) {
    throw Error(ErrorCode::kUsage, "an engine needs at least one sequence and one token a step");
  }
  const std::uint64_t made_for = model.shape().max_context;
  options.context = options.context == 0 ? made_for : std::min(options.context, made_for);
  return options;
}

// The tokens that end a request's text.
std::vector<TokenId> end_ids(const Request& request) {
  std::vector<TokenId> ids = request.stop_ids;
  if (!request.ignore_eos) ids.insert(ids.end(), request.eos_ids.begin(), request.eos_ids.end());
  return ids;
}

bool contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

Engine::Engine(Model& model, EngineOptions options)
    : runner_(model, options.step_records),
      options_(clamped(std::move(options), model)),
      book_(model.page_size(), group_configs(model), options_.token_budget),
      limits_{.vocab_size = model.shape().vocab_size,
              .context = options_.context,
              .kv_longest = book_.longest(options_.context),
              .has_tokenizer = options_.tokenizer != nullptr} {}

Engine::~Engine() {
  for (auto& active : requests_) drop(active->sequence);
  for (auto& [id, conversation] : conversations_) drop(conversation.sequence);
}

RequestId Engine::submit(Request request) { return submit(std::move(request), std::nullopt); }

RequestId Engine::submit(Request request, std::optional<ConversationId> conversation) {
  const Allowance allowance = allow(request, limits_);
  sample::Sampler sampler(request.sampling,
                          {.prompt = request.prompt, .end_ids = end_ids(request), .min_tokens = request.min_tokens});
  TextStream text(options_.tokenizer, request.stop, request.include_stop);
  auto active = std::make_unique<Active>(Active{.id = RequestId{next_id_},
                                                .request = std::move(request),
                                                .allowance = allowance,
                                                .sampler = std::move(sampler),
                                                .text = std::move(text),
                                                .sequence = {},
                                                .conversation = conversation});
  requests_.reserve(requests_.size() + 1);
  sched::Sequence& sequence = active->sequence;
  sequence.tokens = active->request.prompt;
  sequence.planned_length = allowance.kv_length;
  if (conversation) {
    resume(sequence, conversations_.at(*conversation));
  } else {
    sequence.kv = book_.open();
  }
  requests_.push_back(std::move(active));
  return RequestId{next_id_++};
}

bool Engine::cancel(RequestId id) {
  const auto it = std::find_if(requests_.begin(), requests_.end(), [id](const auto& a) { return a->id == id; });
  if (it == requests_.end()) return false;
  Event event{.request = id, .text = (*it)->text.flush(), .finish = FinishReason::kCanceled};
  pending_.push_back(std::move(event));
  release(**it);
  requests_.erase(it);
  return true;
}

std::vector<Event> Engine::step() {
  std::vector<Event> events = std::exchange(pending_, {});
  prepare(events);
  if (requests_.empty()) return events;
  const sched::StepPlan next = plan();
  if (next.items.empty()) {  // can't be: what an empty cache can't hold was refused
    const Error error(ErrorCode::kInternal, "a request can't be started although the KV cache is empty");
    events.push_back(fail(*requests_.front(), error));
  } else {
    std::vector<Work> work;
    for (const sched::PlanItem& item : next.items) {
      Active& active = *requests_[item.sequence];
      if (!std::exchange(active.running, true) && active.conversation) note_reuse(active);
      work.push_back({&active, item.tokens, item.logits});
    }
    try {
      execute(work, next.n_decode, events);
    } catch (const ModelReplaced&) {  // parts of the work may have been done: their events stand
      start_over();
    }
  }
  remove_finished(events);
  return events;
}

// Gives those that are next in line their rope row, as far as there are seats. A model has few of them, so none is kept
// for requests that only wait.
void Engine::prepare(std::vector<Event>& events) {
  std::uint32_t seats = options_.max_sequences;
  for (const auto& active : requests_) {
    if (seats == 0) break;
    try {
      if (!active->ready && !take_rope_row(*active)) break;
      --seats;
    } catch (const Error& error) {
      events.push_back(fail(*active, error));
    }
  }
  remove_finished(events);
}

// Of the requests that are ready, the first ones in order of arrival.
sched::Snapshot Engine::snapshot() const {
  sched::Snapshot snapshot{.page_size = book_.page_size(),
                           .token_budget = options_.token_budget,
                           .max_sequences = options_.max_sequences,
                           .groups = {},
                           .sequences = {}};
  for (std::uint32_t g = 0; g < book_.groups(); ++g) snapshot.groups.push_back({book_.window(g), book_.counts(g).free});
  for (const auto& active : requests_) {
    if (!active->ready) break;
    const sched::Sequence& sequence = active->sequence;
    std::vector<std::uint32_t> held;
    for (std::uint32_t g = 0; g < book_.groups(); ++g) held.push_back(book_.live_pages(sequence.kv, g));
    snapshot.sequences.push_back({.known = sequence.tokens.size(),
                                  .computed = sequence.computed,
                                  .planned_length = sequence.planned_length,
                                  .running = active->running,
                                  .held = std::move(held)});
  }
  return snapshot;
}

sched::StepPlan Engine::plan() {
  sched::StepPlan plan = plan_step(snapshot());
  // What is kept only because it may be of use later yields to what is needed now.
  while (plan.starved && reclaim()) plan = plan_step(snapshot());
  return plan;
}

void Engine::execute(const std::vector<Work>& work, std::uint32_t n_decode, std::vector<Event>& events) {
  Logits logits;
  try {
    logits = run(work, n_decode);
  } catch (const ModelReplaced&) {
    throw;  // what is left of the work was planned for a cache that is no more
  } catch (const Error& error) {
    if (work.size() == 1) {
      events.push_back(fail(*work.front().active, error));
      return;
    }
    // One of them may be the cause, or the step was too much: each alone shows who must end. What the failed step was
    // to write counts for nothing, so each may simply be run again.
    for (std::size_t i = 0; i < work.size(); ++i) execute({work[i]}, i < n_decode ? 1 : 0, events);
    return;
  }
  commit(work, logits, events);
}

Logits Engine::run(const std::vector<Work>& work, std::uint32_t n_decode) {
  std::vector<StepPart> parts;
  for (const Work& item : work) {
    const sched::Sequence& sequence = item.active->sequence;
    if (book_.reserve(sequence.kv, item.tokens) != kv::Reservation::kReserved) {
      throw Error(ErrorCode::kInternal, "the KV cache ran out of pages that had been promised");
    }
    parts.push_back({.sequence = &sequence, .tokens = item.tokens, .rows = {}});
    if (item.logits) parts.back().rows.push_back(item.tokens - 1);
  }
  return runner_.run(build_step(book_, parts, n_decode));
}

void Engine::commit(const std::vector<Work>& work, const Logits& logits, std::vector<Event>& events) {
  std::uint32_t row = 0;
  for (const Work& item : work) {
    sched::Sequence& sequence = item.active->sequence;
    book_.append(sequence.kv, item.tokens);
    sequence.computed += item.tokens;
    if (!item.logits) continue;
    try {
      events.push_back(advance(*item.active, logits.row(row++)));
    } catch (const Error& error) {  // of this row only
      events.push_back(fail(*item.active, error));
    }
  }
}

Event Engine::advance(Active& active, std::span<const double> logits) {
  const Request& request = active.request;
  Event event{.request = active.id, .token = active.sampler.sample(logits), .text = {}};
  if (request.top_logprobs) {
    sample::TokenReport report = sample::report_token(logits, event.token, *request.top_logprobs);
    event.logprob = report.logprob;
    event.top = std::move(report.top);
  }
  active.sequence.tokens.push_back(event.token);
  active.sampler.accept(event.token);
  ++active.generated;
  if (contains(request.stop_ids, event.token) || (!request.ignore_eos && contains(request.eos_ids, event.token))) {
    event.finish = FinishReason::kStop;  // the token itself is no part of the text
  } else {
    event.text = active.text.push(event.token, active.generated > request.min_tokens);
    if (active.text.stopped()) {
      event.finish = FinishReason::kStop;
    } else if (active.generated == active.allowance.max_tokens) {
      event.finish = FinishReason::kLength;
    }
  }
  if (event.finish != FinishReason::kNone) event.text += active.text.flush();
  return event;
}

Event Engine::fail(Active& active, const Error& error) {
  Event event{.request = active.id, .text = active.text.flush(), .finish = FinishReason::kError};
  event.error = error;
  return event;
}

void Engine::remove_finished(const std::vector<Event>& events) {
  for (const Event& event : events) {
    if (event.finish == FinishReason::kNone) continue;
    const auto it =
        std::find_if(requests_.begin(), requests_.end(), [&](const auto& a) { return a->id == event.request; });
    if (it == requests_.end()) continue;  // canceled before
    release(**it);
    requests_.erase(it);
  }
}

// The contents of all pages are gone. Requests keep what they know, and catch up; what conversations kept is of no use.
void Engine::start_over() {
  for (auto& active : requests_) active->sequence.computed = book_.truncate(active->sequence.kv, 0);
  for (auto& [id, conversation] : conversations_) drop(conversation.sequence);
}

}  // namespace backplane::engine
