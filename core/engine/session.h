// A conversation whose KV cache outlives its turns.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/engine/engine.h"
#include "core/engine/generation.h"

namespace backplane::engine {

// Each turn gives the whole conversation as tokens. The tokens that it begins with and that are still in the cache from
// the turn before are not computed again; the results are as if they were. The cache of an idle session yields to
// requests that need its pages, and is gone when the model is replaced. Used from the engine's thread; the engine must
// outlive it.
class Session {
 public:
  explicit Session(Engine& engine) : engine_(engine), id_(engine.open_conversation()) {}
  // A request that is still under way goes on without the session.
  ~Session() { engine_.close_conversation(id_); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // As Engine::submit. Throws kUsage while the turn before is under way.
  RequestId submit(Request request);
  // As engine::generate.
  Generation generate(Request request, const TokenCallback& on_event = {},
                      const std::atomic<bool>* interrupt = nullptr);

  // How many tokens of the last turn that began to run were found in the cache.
  std::uint64_t reused() const;
  // Tokens in the cache between turns.
  std::uint64_t cached() const;

 private:
  Engine& engine_;
  ConversationId id_;
};

}  // namespace backplane::engine
