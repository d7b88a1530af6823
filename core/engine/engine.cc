// From requests to steps. What comes of a step is in commit.cc, what stays of a request in session.cc.
#include "core/engine/engine.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"

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
  options.max_sequences = std::min({options.max_sequences, options.token_budget, model.max_step_sequences()});
  if (options.max_sequences == 0) {
    throw Error(ErrorCode::kUsage, "an engine needs at least one sequence and one token a step");
  }
  const std::uint64_t made_for = model.shape().max_context;
  options.context = options.context == 0 ? made_for : std::min(options.context, made_for);
  if (options.long_prompt == 0) options.long_prompt = std::max(1u, options.token_budget / 2);
  return options;
}

sched::SchedulerOptions scheduler_options(const EngineOptions& options, const Model& model) {
  // As many rows of logits as are worth 64 MiB, but one for every sequence.
  constexpr std::uint32_t kMostLogits = 1u << 23;
  return {.token_budget = options.token_budget,
          .max_sequences = options.max_sequences,
          .max_rows = std::max(options.max_sequences, kMostLogits / std::max(1u, model.shape().vocab_size)),
          .long_prompt = options.long_prompt,
          .headroom = options.headroom};
}

// The tokens that end a request's text.
std::vector<TokenId> end_ids(const Request& request) {
  std::vector<TokenId> ids = request.stop_ids;
  if (!request.ignore_eos) ids.insert(ids.end(), request.eos_ids.begin(), request.eos_ids.end());
  return ids;
}

sample::SamplingParams sampling_of(const Request& request, std::uint32_t answer) {
  sample::SamplingParams params = request.sampling;
  params.choice += answer;
  return params;
}

// Which of a share's tokens need logits.
std::vector<std::uint32_t> rows_of(const sched::Share& share) {
  std::vector<std::uint32_t> rows;
  const auto [begin, end] = share.rows();
  for (std::uint64_t p = begin; p < end; ++p) rows.push_back(static_cast<std::uint32_t>(p - share.sequence->computed));
  if (share.logits) rows.push_back(share.tokens - 1);
  return rows;
}

}  // namespace

Engine::Engine(Model& model, EngineOptions options)
    : runner_(model, options.step_records),
      options_(clamped(std::move(options), model)),
      book_(model.page_size(), group_configs(model), options_.token_budget),
      scheduler_(book_, scheduler_options(options_, model)),
      limits_{.vocab_size = model.shape().vocab_size,
              .context = options_.context,
              .kv_longest = book_.longest(options_.context),
              .has_tokenizer = options_.tokenizer != nullptr},
      drawer_(options_.pool) {}

Engine::~Engine() {
  if (in_flight_ > 0) take_back();
  for (auto& [id, answers] : requests_) {
    for (auto& active : answers) drop(*active);
  }
  for (auto& [id, conversation] : conversations_) drop(conversation.sequence);
}

Engine::Active::Active(std::shared_ptr<const Task> from, std::uint32_t number, const EngineOptions& options)
    : task(std::move(from)),
      answer(number),
      sampler(
          sampling_of(task->request, number),
          {.prompt = task->request.prompt, .end_ids = end_ids(task->request), .min_tokens = task->request.min_tokens}),
      text(options.tokenizer, task->request.stop, task->request.include_stop) {
  ready = false;
  tokens = task->request.prompt;
  planned_length = task->allowance.kv_length;
  order = {.priority = task->request.priority, .arrival = static_cast<std::uint64_t>(task->id), .choice = number};
  if (task->request.prompt_logprobs) rows_end = tokens.size() - 1;
}

RequestId Engine::submit(Request request) { return submit(std::move(request), std::nullopt); }

RequestId Engine::submit(Request request, std::optional<ConversationId> conversation) {
  const Allowance allowance = allow(request, limits_);
  if (conversation && request.n > 1) {
    throw Error(ErrorCode::kUsage, "a turn of a conversation has one answer", {}, "ask for n = 1");
  }
  const RequestId id{next_id_};
  const auto task = std::make_shared<const Task>(Task{id, std::move(request), allowance, conversation});
  const kv::PrefixIdentity identity{
      .adapter = 0, .rope = runner_.model().rope_identity(allowance.planned_length), .salt = task->request.cache_salt};
  Answers& answers = requests_[id];
  try {
    answers.push_back(std::make_unique<Active>(task, 0, options_));
  } catch (...) {
    requests_.erase(id);
    throw;
  }
  Active& active = *answers.front();
  if (conversation) {
    resume(active, identity);
  } else {
    active.kv = open_sequence(identity);
  }
  scheduler_.add(active);
  ++next_id_;
  return id;
}

SequenceId Engine::open_sequence(const kv::PrefixIdentity& identity) {
  return options_.prefix_cache ? book_.open(identity) : book_.open();
}

bool Engine::cancel(RequestId id) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return false;
  const std::size_t before = pending_.size();
  for (auto& active : it->second) end(*active, FinishReason::kCanceled, nullptr, pending_);
  remove_finished(std::span(pending_).subspan(before));
  return true;
}

std::vector<Event> Engine::step() {
  std::vector<Event> events = std::exchange(pending_, {});
  if (requests_.empty()) drop_flights();
  if (in_flight_ == 0) prepare(events);
  if (requests_.empty()) return events;
  if (in_flight_ > 0) {
    go_ahead();
    if (!collect(events)) {
      prepare(events);
      if (!requests_.empty()) run_next(events, false);
    }
  } else {
    run_next(events, true);
  }
  remove_finished(events);
  if (requests_.empty()) {
    drop_flights();
    audit();
  }
  return events;
}

// Nothing of the requests that have ended may be left.
void Engine::audit() const {
  std::string wrong = book_.fault();
  for (std::uint32_t g = 0; conversations_.empty() && g < book_.groups(); ++g) {
    if (book_.counts(g).held > 0) wrong = "pages are held by no one that we know";
  }
  if (!wrong.empty()) log(LogLevel::kError, "engine", "KV bookkeeping: {}", wrong);
}

// Gives those that are next in line their rope row, as far as there are seats, and one more, who may take somebody's
// seat. A model has few of them, so none is kept for requests that only wait.
void Engine::prepare(std::vector<Event>& events) {
  const std::vector<sched::Sequence*> line = scheduler_.next_in_line(std::size_t{scheduler_.free_seats()} + 1);
  for (sched::Sequence* next : line) {
    Active& active = static_cast<Active&>(*next);
    try {
      if (!active.ready && !take_rope_row(active)) break;
    } catch (const Error& error) {
      const std::size_t before = events.size();
      end(active, FinishReason::kError, &error, events);
      remove_finished(std::span(events).subspan(before));
    }
  }
}

void Engine::run_next(std::vector<Event>& events, bool may_pick) {
  const sched::Schedule& next = scheduler_.next([this] { return reclaim_pages(); });
  for (sched::Sequence* dropped : next.dropped) release_rope_row(*dropped);
  if (next.shares.empty()) {  // can't be: what an empty cache can't hold was refused
    const Error error(ErrorCode::kInternal, "a request can't go on although the KV cache has room");
    end(*requests_.begin()->second.front(), FinishReason::kError, &error, events);
    return;
  }
  for (const sched::Share& share : next.shares) {
    Active& active = static_cast<Active&>(*share.sequence);
    if (std::exchange(active.started, true) || !active.task->conversation) continue;
    const auto it = conversations_.find(*active.task->conversation);
    if (it != conversations_.end()) it->second.reused = active.computed;
  }
  try {
    if (may_pick && can_pick(next)) {
      if (!run_picked(next, events)) run_next(events, false);
      return;
    }
    execute(next.shares, next.n_decode, events);
  } catch (const ModelReplaced&) {  // parts of the work may have been done: their events stand
    start_over();
  }
}

void Engine::execute(std::span<const sched::Share> shares, std::uint32_t n_decode, std::vector<Event>& events) {
  Logits logits;
  try {
    logits = run(shares, n_decode);
  } catch (const ModelReplaced&) {
    throw;  // what is left of the work was planned for a cache that is no more
  } catch (const Error& error) {
    if (shares.size() == 1) {
      end(static_cast<Active&>(*shares.front().sequence), FinishReason::kError, &error, events);
      return;
    }
    // One of them may be the cause, or the step was too much: each alone shows who must end. What the failed step was
    // to write counts for nothing, so each may simply be run again.
    for (std::size_t i = 0; i < shares.size(); ++i) execute(shares.subspan(i, 1), i < n_decode ? 1 : 0, events);
    return;
  }
  commit(shares, logits, events);
}

Logits Engine::run(std::span<const sched::Share> shares, std::uint32_t n_decode) {
  copy_pages(shares);
  std::vector<StepPart> parts;
  parts.reserve(shares.size());
  for (const sched::Share& share : shares) {
    parts.push_back({.sequence = share.sequence, .tokens = share.tokens, .rows = rows_of(share)});
  }
  build_step(book_, parts, n_decode, step_);
  return runner_.run(step_);
}

// Of pages that are shared and now written, those who write get their own.
void Engine::copy_pages(std::span<const sched::Share> shares) {
  for (std::uint32_t g = 0; g < book_.groups(); ++g) {
    std::vector<std::int32_t> from, to;
    for (const sched::Share& share : shares) {
      for (const kv::PageCopy& copy : book_.copies(share.sequence->kv)) {
        if (copy.group != g) continue;
        from.push_back(copy.from.value);
        to.push_back(copy.to.value);
      }
    }
    if (from.empty()) continue;
    runner_.model().copy_pages(g, from, to);
    pages_copied_ += from.size();
  }
  for (const sched::Share& share : shares) book_.copied(share.sequence->kv);
}

void Engine::remove_finished(std::span<const Event> events) {
  for (const Event& event : events) {
    if (event.finish == FinishReason::kNone) continue;
    const auto request = requests_.find(event.request);
    if (request == requests_.end()) continue;  // canceled before
    std::erase_if(request->second, [&](const auto& active) {
      if (active->answer != event.answer) return false;
      release(*active);
      return true;
    });
    if (request->second.empty()) requests_.erase(request);
  }
}

// The contents of all pages are gone. Requests keep what they know, and catch up; what conversations kept is of no use.
void Engine::start_over() {
  scheduler_.start_over();
  for (auto& [id, conversation] : conversations_) drop(conversation.sequence);
}

EngineStats Engine::stats() const {
  return {.running = scheduler_.running(),
          .waiting = scheduler_.waiting(),
          .preempted = scheduler_.counts().preempted,
          .pages_copied = pages_copied_,
          .prefix = book_.prefix_counts()};
}

}  // namespace backplane::engine
