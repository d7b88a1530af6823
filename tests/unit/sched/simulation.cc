#include "tests/unit/sched/simulation.h"

#include <algorithm>

namespace backplane::sched::test {

std::uint64_t Simulation::submit(const Asked& asked) {
  auto answer = std::make_unique<Answer>();
  answer->tokens = asked.prompt;
  answer->planned_length = asked.prompt.size() + asked.generate - 1;
  answer->kv = setting_.prefix_cache ? book_.open(kv::PrefixIdentity{}) : book_.open();
  answer->order = {asked.priority, next_, 0};
  answer->request = next_;
  answer->generate = asked.generate;
  answer->answers = asked.answers;
  answer->arrived = steps_;
  if (asked.scored) answer->rows_end = asked.prompt.size() - 1;
  answer->scored.resize(answer->rows_end);
  scheduler_.add(*answer);
  alive_.emplace(answer->order, std::move(answer));
  return next_++;
}

void Simulation::cancel(std::uint64_t request) {
  std::vector<Answer*> all;
  for (auto& [order, answer] : alive_) {
    if (answer->request == request) all.push_back(answer.get());
  }
  for (Answer* answer : all) end(*answer, false);
  ASSERT_EQ(book_.fault(), "");
}

void Simulation::keep_aside(std::uint32_t tokens) {
  const SequenceId id = book_.open();
  if (book_.reserve(id, tokens) != kv::Reservation::kReserved) {
    book_.free(id);
    return;
  }
  book_.append(id, tokens);
  aside_.push_back(id);
}

bool Simulation::reclaim() {
  if (aside_.empty()) return false;
  book_.free(aside_.back());
  aside_.pop_back();
  return true;
}

void Simulation::lose_contents() {
  scheduler_.start_over();
  for (auto& group : memory_) std::fill(group.begin(), group.end(), 0);
}

void Simulation::step() {
  ++steps_;
  std::vector<Order> waited;
  std::map<Order, std::uint64_t> lacked_one;  // running ones, and what they had computed
  for (auto& [order, answer] : alive_) {
    answer->ready = true;
    if (!answer->running) waited.push_back(order);
    if (answer->running && answer->pending() == 1) lacked_one[order] = answer->computed;
  }
  const std::uint64_t preempted = scheduler_.counts().preempted;
  const Schedule& schedule = scheduler_.next([this] { return reclaim(); });
  ASSERT_EQ(schedule.shares.empty(), alive_.empty()) << "nothing goes on";

  std::uint32_t tokens = 0;
  bool admitted = false, all_admitted = true;
  for (const Share& share : schedule.shares) {
    tokens += share.tokens;
    admitted |= share.admitted;
    all_admitted &= share.admitted;
    ASSERT_TRUE(share.sequence->running);
    ASSERT_LT(share.sequence->computed, share.sequence->tokens.size());
  }
  ASSERT_LE(tokens, setting_.options.token_budget);
  ASSERT_LE(scheduler_.running(), setting_.options.max_sequences);
  if (scheduler_.counts().preempted > preempted) {
    ASSERT_TRUE(!admitted || all_admitted) << "a step that preempts admits nothing, but instead of doing nothing";
  }
  for (const Sequence* dropped : schedule.dropped) {
    ASSERT_FALSE(dropped->running);
    ASSERT_EQ(dropped->computed, 0u);
    for (std::uint32_t g = 0; g < book_.groups(); ++g) ASSERT_EQ(book_.live_pages(dropped->kv, g), 0u);
  }
  ASSERT_NO_FATAL_FAILURE(expect_no_overtaking(waited, schedule));
  ASSERT_NO_FATAL_FAILURE(expect_decodes(lacked_one, schedule));
  ASSERT_EQ(book_.fault(), "");

  decodes += schedule.n_decode;
  chunks += schedule.shares.size() - schedule.n_decode;
  mixed += schedule.n_decode > 0 && schedule.n_decode < schedule.shares.size();
  computed += tokens;
  std::uint32_t rows = 0;
  const std::vector<Share> shares = schedule.shares;
  for (const Share& share : shares) {
    const Sequence& s = *share.sequence;
    for (std::uint64_t p = s.computed; p < s.computed + share.tokens; ++p) rows += p >= s.rows_begin && p < s.rows_end;
    rows += share.logits;
    ASSERT_NO_FATAL_FAILURE(compute(share));
  }
  ASSERT_LE(rows, setting_.options.max_rows);
  ASSERT_EQ(book_.fault(), "");
}

// Of those that wait, an earlier one is admitted first, unless it is long and another long one is under way.
void Simulation::expect_no_overtaking(const std::vector<Order>& waited, const Schedule& schedule) {
  const std::uint32_t limit = setting_.options.long_prompt;
  const Order* last = nullptr;
  for (const Share& share : schedule.shares) {
    if (share.admitted && (!last || *last < share.sequence->order)) last = &share.sequence->order;
  }
  for (const Order& order : waited) {
    const Answer& answer = *alive_.at(order);
    if (!last || order > *last || answer.running) continue;
    ASSERT_TRUE(limit > 0 && answer.tokens.size() > limit) << "a short one was overtaken";
  }
}

// Who ran and lacked one token has got it; or had to yield; or it is the last one and there is no page.
void Simulation::expect_decodes(const std::map<Order, std::uint64_t>& lacked_one, const Schedule& schedule) {
  for (const auto& [order, had] : lacked_one) {
    const Answer& answer = *alive_.at(order);
    const bool served = std::any_of(schedule.shares.begin(), schedule.shares.end(),
                                    [&](const Share& share) { return share.sequence == &answer; });
    if (served || !answer.running) continue;
    ++stalled;
    for (const auto& [later, other] : alive_) {
      std::uint32_t held = 0;
      for (std::uint32_t g = 0; g < book_.groups(); ++g) held += book_.live_pages(other->kv, g);
      ASSERT_TRUE(later <= order || held == 0) << "a decode waits while a later one keeps pages";
    }
  }
}

// As a device would: writes the new tokens' K and V, reads those of all that are seen.
void Simulation::compute(const Share& share) {
  Answer& answer = static_cast<Answer&>(*share.sequence);
  if (!answer.started) answer.began = steps_;
  answer.started = true;
  for (const kv::PageCopy& copy : book_.copies(answer.kv)) {
    auto& group = memory_[copy.group];
    std::copy_n(group.begin() + std::ptrdiff_t{copy.from.value} * setting_.page, setting_.page,
                group.begin() + std::ptrdiff_t{copy.to.value} * setting_.page);
    ++copies;
  }
  book_.copied(answer.kv);
  int text = 0;
  const std::uint64_t first = answer.computed, end = first + share.tokens;
  for (std::uint64_t p = 0; p < end; ++p) {
    text = after(text, answer.tokens[p]);
    for (std::uint32_t g = 0; g < book_.groups(); ++g) {
      if (p < kv::first_seen(first, book_.window(g))) continue;
      int& at = memory_[g][static_cast<std::size_t>(book_.slot(answer.kv, g, p))];
      if (p >= first) at = text;
      ASSERT_EQ(at, text) << "position " << p;
    }
    if (p >= first && p >= answer.rows_begin && p < answer.rows_end) {
      ASSERT_FALSE(answer.scored[p]) << "twice";
      answer.scored[p] = true;
    }
  }
  scheduler_.commit(share);
  if (!share.logits) return;
  answer.tokens.push_back(static_cast<TokenId>(text * 7 % 3));
  const bool begins = ++answer.generated == 1 && answer.order.choice == 0;
  if (begins && answer.answers > 1) fork(answer);
  advance(answer);
}

void Simulation::fork(Answer& first) {
  for (std::uint32_t i = 1; i < first.answers; ++i) {
    auto answer = std::make_unique<Answer>();
    answer->tokens = first.tokens;
    answer->tokens.back() = static_cast<TokenId>(10 + i);
    answer->computed = first.computed;
    answer->planned_length = first.planned_length;
    answer->kv = book_.fork(first.kv);
    answer->order = {first.order.priority, first.order.arrival, i};
    answer->request = first.request;
    answer->generate = first.generate;
    answer->generated = 1;
    answer->arrived = steps_;
    Answer& added = *alive_.emplace(answer->order, std::move(answer)).first->second;
    scheduler_.add(added);
    advance(added);
  }
}

void Simulation::advance(Answer& answer) {
  if (answer.generated == answer.generate) end(answer, true);
}

void Simulation::end(Answer& answer, bool by_itself) {
  scheduler_.remove(answer);
  book_.free(answer.kv);
  auto node = alive_.extract(answer.order);
  if (!by_itself) return;
  if (answer.order.choice == 0) {
    EXPECT_EQ(std::count(answer.scored.begin(), answer.scored.end(), false), 0);
  }
  ended_.push_back(std::move(node.mapped()));
}

}  // namespace backplane::sched::test
