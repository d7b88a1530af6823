#include "tools/lab/replay.h"

#include <algorithm>
#include <chrono>
#include <unordered_map>

#include "core/base/error.h"

namespace backplane::lab {
namespace {

class Player {
 public:
  Player(const Setup& setup, std::span<const TraceRequest> trace, Policy policy, std::uint32_t seats)
      : setup_(setup),
        trace_(trace),
        policy_(policy),
        seats_(seats),
        engine_(setup.model, measuring(policy == Policy::kOne ? 1 : seats, setup.room)) {
    for (const TraceRequest& request : trace) out_.requests.push_back({.arrival_s = request.arrival_s, .ids = {}});
  }

  Replayed play(const std::function<void()>& on_token) {
    while (next_ < trace_.size() || !engine_.idle()) {
      if (engine_.idle() && trace_[next_].arrival_s > now_) {
        note_occupancy(0);
        now_ = trace_[next_].arrival_s;
      }
      submit_arrived();
      step(on_token);
    }
    note_occupancy(0);
    out_.end_s = now_;
    return std::move(out_);
  }

 private:
  void submit_arrived() {
    if (policy_ == Policy::kStatic && !engine_.idle()) return;
    while (next_ < trace_.size() && trace_[next_].arrival_s <= now_) {
      if (policy_ == Policy::kStatic && engine_.requests() == seats_) return;
      const TraceRequest& request = trace_[next_];
      const auto number = static_cast<std::uint32_t>(next_);
      index_[engine_.submit(greedy_request(setup_.prompts.ids(request.prompt, number), request.generated))] = next_++;
    }
  }

  void step(const std::function<void()>& on_token) {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<engine::Event> events = engine_.step();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (engine_.steps().steps_run() != out_.steps) {
      out_.steps = engine_.steps().steps_run();
      const std::uint32_t sequences = engine_.steps().records().back().sequences;
      note_occupancy(sequences);
      out_.busy_s += seconds;
      out_.seat_seconds += seconds * sequences;
    }
    now_ += seconds;
    for (const engine::Event& event : events) {
      if (event.error) throw *event.error;
      Served& served = out_.requests[index_.at(event.request)];
      if (event.token >= 0) {
        if (served.ids.empty()) served.first_token_s = now_;
        served.ids.push_back(event.token);
        on_token();
      }
      if (event.finish != engine::FinishReason::kNone) served.end_s = now_;
    }
  }

  void note_occupancy(std::uint32_t sequences) {
    if (out_.occupancy.empty() || out_.occupancy.back().sequences != sequences) {
      out_.occupancy.push_back({now_, sequences});
    }
  }

  const Setup& setup_;
  std::span<const TraceRequest> trace_;
  Policy policy_;
  std::uint32_t seats_;
  engine::Engine engine_;
  std::unordered_map<engine::RequestId, std::size_t> index_;
  std::size_t next_ = 0;  // of the trace, not submitted yet
  double now_ = 0;
  Replayed out_;
};

}  // namespace

Replayed replay(const Setup& setup, std::span<const TraceRequest> trace, Policy policy, std::uint32_t seats,
                const std::function<void()>& on_token) {
  return Player(setup, trace, policy, seats).play(on_token);
}

}  // namespace backplane::lab
