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
  return follow(engine_, submit(std::move(request)), on_event, interrupt);
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

// Gives the sequence what is left of the conversation's last turn, as far as it begins with the same tokens. It keeps
// the rope row of that turn until it gets its own.
void Engine::resume(sched::Sequence& sequence, Conversation& conversation) {
  sched::Sequence& kept = conversation.sequence;
  if (!kept.kv.valid()) {
    sequence.kv = book_.open();
  } else {
    const auto shared =
        std::mismatch(sequence.tokens.begin(), sequence.tokens.end(), kept.tokens.begin(), kept.tokens.end());
    auto same = static_cast<std::uint64_t>(shared.first - sequence.tokens.begin());
    same = std::min<std::uint64_t>(same, sequence.tokens.size() - 1);  // the last token's logits are wanted
    sequence.computed = book_.truncate(kept.kv, same);
    sequence.kv = kept.kv;
    sequence.rope_row = kept.rope_row;
    kept = {};
  }
  conversation.busy = true;
  conversation.reused = 0;
}

// False when the request must wait for one that holds the rope row it needs.
bool Engine::take_rope_row(Active& active) {
  sched::Sequence& sequence = active.sequence;
  std::int32_t row = -1;
  while (row < 0) {
    try {
      row = runner_.model().acquire_rope_row(active.allowance.planned_length);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCapacity) throw;
      if (sequence.rope_row >= 0) {
        forget(sequence);
      } else if (!reclaim()) {
        if (std::any_of(requests_.begin(), requests_.end(), [](const auto& a) { return a->ready; })) return false;
        throw;
      }
    }
  }
  if (sequence.rope_row == row) {
    runner_.model().release_rope_row(row);  // of the two references that it has now
  } else {
    forget(sequence);  // the keys in the cache were turned by other angles
    sequence.rope_row = row;
  }
  active.ready = true;
  return true;
}

void Engine::note_reuse(const Active& active) {
  const auto it = conversations_.find(*active.conversation);
  if (it != conversations_.end()) it->second.reused = active.sequence.computed;
}

// The end of a request, however it ended.
void Engine::release(Active& active) {
  sched::Sequence& sequence = active.sequence;
  const auto it = active.conversation ? conversations_.find(*active.conversation) : conversations_.end();
  if (it == conversations_.end()) {
    drop(sequence);
    return;
  }
  it->second.busy = false;
  it->second.used = ++clock_;
  if (sequence.computed == 0) {
    drop(sequence);
    return;
  }
  book_.truncate(sequence.kv, sequence.computed);  // pages of a step that didn't succeed
  sequence.tokens.resize(sequence.computed);
  it->second.sequence = std::exchange(sequence, {});
}

// Gives up what the sequence has in the cache, and its rope row.
void Engine::forget(sched::Sequence& sequence) {
  sequence.computed = book_.truncate(sequence.kv, 0);
  if (sequence.rope_row >= 0) runner_.model().release_rope_row(std::exchange(sequence.rope_row, -1));
}

void Engine::drop(sched::Sequence& sequence) {
  if (!sequence.kv.valid()) return;
  forget(sequence);
  book_.free(sequence.kv);
  sequence = {};
}

// Frees the pages of the session idle for longest, else of the last waiting request that brought some along (but not of
// the first, for which they are wanted). False when there are none.
bool Engine::reclaim() {
  Conversation* oldest = nullptr;
  for (auto& [id, conversation] : conversations_) {
    if (conversation.sequence.kv.valid() && (!oldest || conversation.used < oldest->used)) oldest = &conversation;
  }
  if (oldest) {
    drop(oldest->sequence);
    return true;
  }
  const auto first = std::find_if(requests_.begin(), requests_.end(), [](const auto& a) { return !a->running; });
  for (auto it = requests_.end(); it != first && --it != first;) {
    sched::Sequence& sequence = (*it)->sequence;
    if (sequence.computed == 0) continue;
    if ((*it)->ready) {
      sequence.computed = book_.truncate(sequence.kv, 0);
    } else {
      forget(sequence);
    }
    return true;
  }
  return false;
}

}  // namespace backplane::engine
