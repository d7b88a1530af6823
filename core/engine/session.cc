// Session, and the engine's side of it: what stays in the cache when a request ends, and what yields when pages lack.
#include "core/engine/session.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace backplane::engine {

RequestId Session::submit(Request request) {
  if (engine_.conversations_.at(id_).busy) {
    throw Error(ErrorCode::kUsage, "the turn before is still under way", {}, "wait for its end, or cancel it");
  }
  return engine_.submit(std::move(request), id_);
}

Generation Session::generate(Request request, const TokenCallback& on_event, const std::atomic<bool>* interrupt) {
  require_idle(engine_);
  require_one_answer(request);
  return std::move(follow(engine_, submit(std::move(request)), 1, on_event, interrupt).front());
}

std::uint64_t Session::reused() const { return engine_.conversations_.at(id_).reused; }

std::uint64_t Session::cached() const { return engine_.conversations_.at(id_).sequence.computed; }

ConversationId Engine::open_conversation() {
  const ConversationId id{next_id_++};
  conversations_[id].used = ++clock_;
  return id;
}

void Engine::close_conversation(ConversationId id) {
  const auto it = conversations_.find(id);
  drop(it->second.sequence);
  conversations_.erase(it);
}

// Gives the request what is left of its conversation's last turn, as far as it begins with the same tokens. It keeps
// the rope row of that turn until it gets its own.
void Engine::resume(Active& active, const kv::PrefixIdentity& identity) {
  Conversation& conversation = conversations_.at(*active.task->conversation);
  sched::Sequence& kept = conversation.sequence;
  // What was computed with other rope factors, or under another salt, is another text.
  if (kept.kv.valid() && conversation.identity != identity) drop(kept);
  if (!kept.kv.valid()) {
    active.kv = open_sequence(identity);
  } else {
    const auto shared =
        std::mismatch(active.tokens.begin(), active.tokens.end(), kept.tokens.begin(), kept.tokens.end());
    auto same = static_cast<std::uint64_t>(shared.first - active.tokens.begin());
    same = std::min<std::uint64_t>(same, active.tokens.size() - 1);  // the last token's logits are wanted
    if (active.rows_end > 0) same = 0;                               // and those of all others
    active.computed = book_.truncate(kept.kv, same);
    active.kv = kept.kv;
    active.rope_row = kept.rope_row;
    kept = {};
  }
  conversation.identity = identity;
  conversation.busy = true;
  conversation.reused = 0;
}

// False when the request must wait for one that holds the rope row it needs.
bool Engine::take_rope_row(Active& active) {
  std::int32_t row = -1;
  while (row < 0) {
    try {
      row = runner_.model().acquire_rope_row(active.task->allowance.planned_length);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCapacity) throw;
      if (active.rope_row >= 0) {
        scheduler_.forget(active);
        release_rope_row(active);
      } else if (!reclaim_rope_row(active)) {
        if (scheduler_.running() > 0 || scheduler_.next_in_line(1).front() != &active) return false;
        throw;
      }
    }
  }
  release_rope_row(active);  // of the two references that it has now, or one it can't use
  active.rope_row = row;
  active.ready = true;
  return true;
}

void Engine::release_rope_row(sched::Sequence& sequence) {
  if (sequence.rope_row >= 0) runner_.model().release_rope_row(std::exchange(sequence.rope_row, -1));
}

// The end of a request, however it ended.
void Engine::release(Active& active) {
  leave_flights(active);
  scheduler_.remove(active);
  if (active.broken && active.kv.valid()) book_.distrust(active.kv);
  const auto& id = active.task->conversation;
  const auto it = id ? conversations_.find(*id) : conversations_.end();
  if (it == conversations_.end()) {
    drop(active);
    return;
  }
  it->second.busy = false;
  it->second.used = ++clock_;
  if (active.computed == 0 || active.broken) {
    drop(active);
    return;
  }
  book_.truncate(active.kv, active.computed);  // pages of a step that didn't succeed
  active.tokens.resize(active.computed);
  it->second.sequence = std::exchange(static_cast<sched::Sequence&>(active), {});
}

// Gives up all that the sequence has.
void Engine::drop(sched::Sequence& sequence) {
  if (!sequence.kv.valid()) return;
  release_rope_row(sequence);
  book_.free(sequence.kv);
  sequence = {};
}

// Frees what the session idle for longest has. False when none has anything.
bool Engine::reclaim_pages() {
  Conversation* oldest = nullptr;
  for (auto& [id, conversation] : conversations_) {
    if (conversation.sequence.kv.valid() && (!oldest || conversation.used < oldest->used)) oldest = &conversation;
  }
  if (oldest) drop(oldest->sequence);
  return oldest != nullptr;
}

// Takes a rope row from who only waits: from an idle session, else from the last request behind the one that wants it.
// False when none of them has one.
bool Engine::reclaim_rope_row(const Active& wanted) {
  if (reclaim_pages()) return true;
  sched::Sequence* last = nullptr;
  for (auto& [id, answers] : requests_) {
    for (auto& active : answers) {
      const bool behind = !active->running && active->order > wanted.order;
      if (behind && active->rope_row >= 0 && (!last || active->order > last->order)) last = active.get();
    }
  }
  if (!last) return false;
  scheduler_.forget(*last);
  release_rope_row(*last);
  last->ready = false;
  return true;
}

}  // namespace backplane::engine
