// Requests in, events out: plans a step, runs it on the model, samples, keeps the books. Knows no front end.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/engine/admission.h"
#include "core/engine/model.h"
#include "core/engine/request.h"
#include "core/engine/step_builder.h"
#include "core/engine/step_runner.h"
#include "core/engine/text_stream.h"
#include "core/kv/kv_book.h"
#include "core/sample/sampler.h"
#include "core/sched/planner.h"
#include "core/sched/sequence.h"

namespace backplane::engine {

struct EngineOptions {
  std::uint32_t max_sequences = 64;                       // running at once; no more than token_budget
  std::uint32_t token_budget = 2048;                      // tokens of a step; no more than the model's own limit
  std::uint64_t context = 0;                              // tokens of a sequence; 0: as many as the model was made for
  std::shared_ptr<const text::Tokenizer> tokenizer = {};  // null: events have no text
  std::size_t step_records = 65536;                       // how many of the latest steps are remembered
};

// The KV cache of a conversation between two requests; see session.h.
enum class ConversationId : std::uint64_t {};

// All calls from one thread. Owns the model's KV pages as long as it lives: nothing else may run steps on the model.
//
// A request that fails (broken logits, a step that the device refuses) ends with an error event; the others go on.
// When the model is replaced, all go on as if nothing had happened: their tokens are computed again, in steps like any
// other, before new ones come.
class Engine {
 public:
  // `model` must outlive this. Throws kUsage for options that allow no work.
  explicit Engine(Model& model, EngineOptions options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Throws what `allow` in admission.h says; then nothing has changed.
  RequestId submit(Request request);
  // Ends a request in any state, frees its pages at once; the event comes with the next step(). False when there is no
  // such request any more.
  bool cancel(RequestId id);

  // One step for all running requests, whose tokens come back as events; each request's events are in order. A step may
  // give none, as when it only worked on prompts. Does nothing when idle().
  std::vector<Event> step();
  bool idle() const { return requests_.empty() && pending_.empty(); }

  // What the model has really executed.
  const StepRunner& steps() const { return runner_; }
  kv::PoolCounts pages(std::uint32_t group) const { return book_.counts(group); }
  const Limits& limits() const { return limits_; }
  std::uint32_t groups() const { return book_.groups(); }
  std::size_t requests() const { return requests_.size(); }  // running and waiting
  std::size_t running() const {
    std::size_t count = 0;
    for (const auto& active : requests_) count += active->running;
    return count;
  }

 private:
  friend class Session;

  struct Active {
    RequestId id;
    Request request;
    Allowance allowance;
    sample::Sampler sampler;
    TextStream text;
    sched::Sequence sequence;
    std::uint32_t generated = 0;
    bool ready = false;  // has the rope row it will run with
    bool running = false;
    std::optional<ConversationId> conversation;
  };

  // What is left in the cache of a conversation's last turn. `sequence.kv` is invalid when nothing is.
  struct Conversation {
    sched::Sequence sequence;
    bool busy = false;  // a request has it
    std::uint64_t used = 0;
    std::uint64_t reused = 0;  // by the latest request
  };

  // One request's share of a step.
  struct Work {
    Active* active;
    std::uint32_t tokens;
    bool logits;
  };

  // engine.cc
  RequestId submit(Request request, std::optional<ConversationId> conversation);
  void prepare(std::vector<Event>& events);
  sched::Snapshot snapshot() const;
  sched::StepPlan plan();
  void execute(const std::vector<Work>& work, std::uint32_t n_decode, std::vector<Event>& events);
  Logits run(const std::vector<Work>& work, std::uint32_t n_decode);
  void commit(const std::vector<Work>& work, const Logits& logits, std::vector<Event>& events);
  Event advance(Active& active, std::span<const double> logits);
  Event fail(Active& active, const Error& error);
  void remove_finished(const std::vector<Event>& events);
  void start_over();

  // session.cc
  ConversationId open_conversation();
  void close_conversation(ConversationId id);
  void resume(sched::Sequence& sequence, Conversation& conversation);
  void release(Active& active);
  bool take_rope_row(Active& active);
  void note_reuse(const Active& active);
  void forget(sched::Sequence& sequence);
  void drop(sched::Sequence& sequence);
  bool reclaim();

  StepRunner runner_;
  EngineOptions options_;
  kv::KvBook book_;
  Limits limits_;
  std::vector<std::unique_ptr<Active>> requests_;  // in order of arrival
  std::unordered_map<ConversationId, Conversation> conversations_;
  std::vector<Event> pending_;  // of cancellations, for the next step()
  std::uint64_t next_id_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace backplane::engine
