// Greedy steps: the model picks the tokens, and the next step is begun before they are known here. When a sequence
// turns out to have ended, its row of the step that is under way counts for nothing; what that row writes goes to pages
// that nobody reads before they are written again, since a device works on one step after the other.
#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/engine/engine.h"
#include "core/sample/logprobs.h"

namespace backplane::engine {
namespace {

constexpr TokenId kUnknown = 0;             // stands for a token that the model knows and we don't yet
constexpr std::uint32_t kMostFailures = 3;  // in a row

}  // namespace

bool Engine::can_pick(const sched::Schedule& schedule) const {
  if (!options_.run_ahead || schedule.n_decode != schedule.shares.size() || !runner_.model().can_pick()) return false;
  return std::all_of(schedule.shares.begin(), schedule.shares.end(), [](const sched::Share& share) {
    const Active& active = static_cast<const Active&>(*share.sequence);
    const Request& request = active.task->request;
    const auto [begin, end] = share.rows();
    const bool forks = active.generated == 0 && active.answer == 0 && request.n > 1;
    return share.logits && share.tokens == 1 && begin == end && active.sampler.takes_largest() &&
           !request.top_logprobs && !forks;
  });
}

// False: it failed and was taken back. Planned again and run as any other step, it shows what is wrong.
bool Engine::run_picked(const sched::Schedule& schedule, std::vector<Event>& events) {
  Flight& flight = this->flight(0);
  flight.shares = schedule.shares;
  flight.committed = false;
  flight.next_share.assign(flight.shares.size(), -1);
  in_flight_ = 1;
  try {
    copy_pages(flight.shares);
    std::vector<StepPart> parts;
    for (const sched::Share& share : flight.shares) parts.push_back({share.sequence, 1, {0}});
    build_step(book_, parts, static_cast<std::uint32_t>(parts.size()), flight.step);
    runner_.begin(flight.step, {});
  } catch (const std::exception& error) {
    note_failure("couldn't be left to the device", error);
    return false;
  }
  go_ahead();
  return collect(events);
}

// Begins the step after the one under way, where nothing but its tokens is unknown: nobody waits, and there are pages.
void Engine::go_ahead() {
  if (in_flight_ != 1 || scheduler_.waiting() > 0) return;
  Flight& now = flight(0);
  Flight& next = flight(1);
  next.shares.clear();
  for (const sched::Share& share : now.shares) {
    if (!share.sequence) continue;
    const Active& active = static_cast<const Active&>(*share.sequence);
    if (active.generated + 1 < active.task->allowance.max_tokens) next.shares.push_back(share);
  }
  for (std::uint32_t g = 0; g < book_.groups(); ++g) {
    if (book_.counts(g).available() < next.shares.size()) return;
  }
  if (next.shares.empty()) return;

  now.committed = true;
  std::vector<StepPart> parts;
  std::vector<std::int32_t> targets(now.shares.size(), -1);
  for (std::size_t i = 0; i < now.shares.size(); ++i) {
    const sched::Share& share = now.shares[i];
    if (!share.sequence) continue;
    scheduler_.commit(share);
    const bool goes_on = parts.size() < next.shares.size() && next.shares[parts.size()].sequence == share.sequence;
    if (!goes_on) continue;
    targets[i] = now.next_share[i] = static_cast<std::int32_t>(parts.size());
    share.sequence->tokens.push_back(kUnknown);
    if (book_.reserve(share.sequence->kv, 1) != kv::Reservation::kReserved) {
      throw Error(ErrorCode::kInternal, "the KV cache has fewer pages than it said");
    }
    parts.push_back({share.sequence, 1, {0}});
  }
  next.committed = false;
  next.next_share.assign(next.shares.size(), -1);
  next.stand_in.assign(next.shares.size(), true);
  in_flight_ = 2;
  try {
    copy_pages(next.shares);
    build_step(book_, parts, static_cast<std::uint32_t>(parts.size()), next.step);
    runner_.begin(next.step, targets);
  } catch (const std::exception& error) {
    note_failure("couldn't be begun ahead", error);
  }
}

// The tokens of the earliest step under way. False: it failed, or was taken back; nothing is under way any more, and
// what it was to compute is to be planned again.
bool Engine::collect(std::vector<Event>& events) {
  if (in_flight_ == 0) return false;
  try {
    const std::vector<Pick> picks = runner_.end();
    take_picks(picks, events);
  } catch (const std::exception& error) {
    note_failure("that was left to the device failed", error);
    return false;
  }
  failures_ = 0;
  first_flight_ = 1 - first_flight_;
  --in_flight_;
  return true;
}

void Engine::take_picks(std::span<const Pick> picks, std::vector<Event>& events) {
  Flight& flight = this->flight(0);
  for (std::size_t i = 0; i < flight.shares.size(); ++i) {
    if (!flight.shares[i].sequence) continue;
    Active& active = static_cast<Active&>(*flight.shares[i].sequence);
    if (!flight.committed) scheduler_.commit(flight.shares[i]);
    if (flight.next_share[i] >= 0) {
      active.tokens.pop_back();  // what stood for the pick
      this->flight(1).stand_in[static_cast<std::size_t>(flight.next_share[i])] = false;
    }
    try {
      sample::check_logits({&picks[i].logit, 1});
      Draw draw;
      draw.token = picks[i].id;
      events.push_back(advance(active, draw));
    } catch (const Error& error) {  // of this row only
      active.broken = true;
      end(active, FinishReason::kError, &error, events);
    }
  }
}

// What fails again and again costs each step twice: then steps are waited for.
void Engine::note_failure(std::string_view what, const std::exception& error) {
  log(LogLevel::kDebug, "engine", "a step {}: {}", what, error.what());
  take_back();
  if (++failures_ < kMostFailures) return;
  options_.run_ahead = false;
  log(LogLevel::kWarning, "engine", "steps are no longer left to the device: {}", error.what());
}

// As if nothing under way had been begun.
void Engine::take_back() {
  runner_.abandon();
  for (std::size_t f = in_flight_; f-- > 0;) {
    for (std::size_t i = 0; i < flight(f).shares.size(); ++i) {
      if (!flight(f).shares[i].sequence) continue;
      sched::Sequence& sequence = *flight(f).shares[i].sequence;
      if (f == 1 && flight(1).stand_in[i]) sequence.tokens.pop_back();
      if (flight(f).committed) {
        book_.distrust(sequence.kv);
        --sequence.computed;
      }
      sequence.computed = book_.truncate(sequence.kv, sequence.computed);
    }
  }
  in_flight_ = 0;
}

// A request ends, or goes on without its place in the steps under way.
void Engine::leave_flights(const Active& active) {
  for (std::size_t f = 0; f < in_flight_; ++f) {
    for (sched::Share& share : flight(f).shares) {
      if (share.sequence == &active) share.sequence = nullptr;
    }
  }
}

// Nobody wants what is under way: it ends, and what was recorded on the device stays.
void Engine::drop_flights() {
  try {
    for (; in_flight_ > 0; --in_flight_) {
      runner_.skip();
      first_flight_ = 1 - first_flight_;
    }
  } catch (const std::exception& error) {
    note_failure("that nobody waited for failed", error);
  }
}

}  // namespace backplane::engine
