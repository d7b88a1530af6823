// Requests in, events out: plans a step, runs it on the model, samples, keeps the books. Knows no front end.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/thread_pool.h"
#include "core/engine/admission.h"
#include "core/engine/draw.h"
#include "core/engine/model.h"
#include "core/engine/request.h"
#include "core/engine/step_builder.h"
#include "core/engine/step_runner.h"
#include "core/engine/text_stream.h"
#include "core/kv/kv_book.h"
#include "core/sample/sampler.h"
#include "core/sched/scheduler.h"
#include "core/sched/sequence.h"

namespace backplane::engine {

struct EngineOptions {
  std::uint32_t max_sequences = 64;   // running at once; no more than token_budget and the model's own limit
  std::uint32_t token_budget = 2048;  // tokens of a step; no more than the model's own limit
  std::uint64_t context = 0;          // tokens of a sequence; 0: as many as the model was made for
  std::shared_ptr<const text::Tokenizer> tokenizer = {};  // null: events have no text
  std::size_t step_records = 65536;                       // how many of the latest steps are remembered
  // Whether K and V of earlier requests are used again where the text begins alike.
  bool prefix_cache = true;
  // A request is admitted when there are pages for what it has and for this many tokens more, as far as it may grow:
  // the fewer, the more run at once, and the more are preempted when pages run out. kNoPreemption: for all that it may
  // become, so that no one is, but for what sched::Snapshot::headroom says.
  std::uint64_t headroom = 64;
  static constexpr std::uint64_t kNoPreemption = std::numeric_limits<std::uint64_t>::max();
  // A prompt with more tokens than this to compute shares steps with short ones; 0: half of the token budget.
  std::uint32_t long_prompt = 0;
  // Whether greedy steps are left to a model that can pick tokens itself, the next one begun before the tokens of this
  // one are known. Changes no answer.
  bool run_ahead = true;
  // Where a step's rows of logits are sampled if they are many; it outlives the engine, and changes no answer. Null:
  // one of its own with all processors, started when first there are so many.
  ThreadPool* pool = nullptr;
};

struct EngineStats {
  std::size_t running = 0, waiting = 0;  // sequences; the answers of a request beyond the first exist from its first
                                         // token on
  std::uint64_t preempted = 0;           // how often a running sequence had to yield
  std::uint64_t pages_copied = 0;        // which answers to one prompt had shared
  kv::PrefixCounts prefix;
};

// The KV cache of a conversation between two requests; see session.h.
enum class ConversationId : std::uint64_t {};

// All calls from one thread. Owns the model's KV pages as long as it lives: nothing else may run steps on the model.
//
// A request that fails (broken logits, a step that the device refuses) ends with an error event; the others go on.
// When the model is replaced, all go on as if nothing had happened: their tokens are computed again, in steps like any
// other, before new ones come. So do those that were preempted.
class Engine {
 public:
  // `model` must outlive this. Throws kUsage for options that allow no work.
  explicit Engine(Model& model, EngineOptions options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Throws what `allow` in admission.h says; then nothing has changed.
  RequestId submit(Request request);
  // Ends a request in any state, with all its answers, and frees its pages at once; the events come with the next
  // step(). False when there is no such request any more.
  bool cancel(RequestId id);

  // One step for all running requests, whose tokens come back as events; each answer's events are in order. A step may
  // give none, as when it only worked on prompts. Does nothing when idle().
  std::vector<Event> step();
  bool idle() const { return requests_.empty() && pending_.empty(); }

  // What the model has really executed.
  const StepRunner& steps() const { return runner_; }
  kv::PoolCounts pages(std::uint32_t group) const { return book_.counts(group); }
  std::vector<std::int32_t> pages_in_use(std::uint32_t group) const { return book_.pages_in_use(group); }
  const Limits& limits() const { return limits_; }
  std::uint32_t groups() const { return book_.groups(); }
  std::size_t requests() const { return requests_.size(); }     // running and waiting
  std::size_t running() const { return scheduler_.running(); }  // answers that have a seat
  EngineStats stats() const;
  // Counts all pages anew. Empty when every one is free, cached or held by who should hold it; else what is wrong.
  std::string fault() const { return book_.fault(); }

 private:
  friend class Session;

  // What the answers to one request have in common.
  struct Task {
    RequestId id;
    Request request;
    Allowance allowance;
    std::optional<ConversationId> conversation;
  };

  // One answer.
  struct Active : sched::Sequence {
    std::shared_ptr<const Task> task;
    std::uint32_t answer = 0;
    sample::Sampler sampler;
    TextStream text;
    std::uint32_t generated = 0;
    bool started = false;                     // has run
    bool broken = false;                      // has had logits that are none: its K and V may be no better
    std::vector<sample::TokenReport> prompt;  // until the first token

    Active(std::shared_ptr<const Task> from, std::uint32_t number, const EngineOptions& options);
  };
  using Answers = std::vector<std::unique_ptr<Active>>;

  // What is left in the cache of a conversation's last turn. `sequence.kv` is invalid when nothing is.
  struct Conversation {
    sched::Sequence sequence;
    kv::PrefixIdentity identity;
    bool busy = false;  // a request has it
    std::uint64_t used = 0;
    std::uint64_t reused = 0;  // by the latest request
  };

  // A step that the model has begun. A share's sequence is null once its request has ended.
  struct Flight {
    sched::Step step;
    std::vector<sched::Share> shares;
    bool committed = false;                // its tokens are taken for computed: the next one has begun
    std::vector<std::int32_t> next_share;  // by share: its place in the next flight, or -1
    std::vector<bool> stand_in;            // by share, of the second: its sequence ends in a token that isn't known yet
  };

  // engine.cc
  RequestId submit(Request request, std::optional<ConversationId> conversation);
  SequenceId open_sequence(const kv::PrefixIdentity& identity);
  void prepare(std::vector<Event>& events);
  void run_next(std::vector<Event>& events, bool may_pick);
  void execute(std::span<const sched::Share> shares, std::uint32_t n_decode, std::vector<Event>& events);
  Logits run(std::span<const sched::Share> shares, std::uint32_t n_decode);
  void copy_pages(std::span<const sched::Share> shares);
  void remove_finished(std::span<const Event> events);
  void audit() const;
  void start_over();

  // commit.cc
  void commit(std::span<const sched::Share> shares, const Logits& logits, std::vector<Event>& events);
  void add_draws(const sched::Share& share, const Logits& logits, std::uint32_t& row);
  void commit(const sched::Share& share, std::span<Draw> draws, std::vector<Event>& events);
  void fork(Active& first, std::span<const double> logits, std::vector<Event>& events);
  Event advance(Active& active, Draw& drawn);
  void end(Active& active, FinishReason reason, const Error* error, std::vector<Event>& events);

  // ahead.cc
  Flight& flight(std::size_t i) { return flights_[(first_flight_ + i) % flights_.size()]; }
  bool can_pick(const sched::Schedule& schedule) const;
  bool run_picked(const sched::Schedule& schedule, std::vector<Event>& events);
  void go_ahead();
  bool collect(std::vector<Event>& events);
  void take_picks(std::span<const Pick> picks, std::vector<Event>& events);
  void note_failure(std::string_view what, const std::exception& error);
  void take_back();
  void leave_flights(const Active& active);
  void drop_flights();

  // session.cc
  ConversationId open_conversation();
  void close_conversation(ConversationId id);
  void resume(Active& active, const kv::PrefixIdentity& identity);
  void release(Active& active);
  bool take_rope_row(Active& active);
  void release_rope_row(sched::Sequence& sequence);
  void drop(sched::Sequence& sequence);
  bool reclaim_pages();
  bool reclaim_rope_row(const Active& wanted);

  StepRunner runner_;
  EngineOptions options_;
  kv::KvBook book_;
  sched::Scheduler scheduler_;
  Limits limits_;
  std::unordered_map<RequestId, Answers> requests_;
  std::unordered_map<ConversationId, Conversation> conversations_;
  std::vector<Event> pending_;  // of cancellations, for the next step()
  std::uint64_t next_id_ = 0;
  std::uint64_t clock_ = 0;
  std::uint64_t pages_copied_ = 0;
  sched::Step step_;  // reused
  std::array<Flight, 2> flights_;
  std::size_t first_flight_ = 0, in_flight_ = 0;  // of these, how many are under way, and the earliest
  std::uint32_t failures_ = 0;                    // in a row, of steps that were left to the device
  RowDrawer drawer_;
  std::vector<Draw> draws_;  // reused
};

}  // namespace backplane::engine
