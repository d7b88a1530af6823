// Machine contexts: stacks with a guard page, switches between them, and what the sanitizers must be told of each
// switch.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>

namespace cuda_emulation {

// What the race checker is told. Nothing, where it doesn't run.

/// Its idea of a thread of control; null without it.
using RaceContext = void*;

#if defined(CUDA_EMULATION_TSAN)
/// Whether a thread may continue on the stack of one that ended. The race checker would take that for a race.
constexpr bool kStacksAreShared = false;

RaceContext make_race_context();
RaceContext current_race_context();
void destroy_race_context(RaceContext context);
/// What follows runs as another race context, on the same stack.
void become(RaceContext context);
/// What happened before release(address) happened before what follows acquire(address).
void release(const void* address);
void acquire(const void* address);

/// While it lives, the calling thread's accesses are none of the race checker's business.
class Unchecked {
 public:
  Unchecked();
  ~Unchecked();
};
#else
constexpr bool kStacksAreShared = true;

inline RaceContext make_race_context() { return nullptr; }
inline RaceContext current_race_context() { return nullptr; }
inline void destroy_race_context(RaceContext) {}
inline void become(RaceContext) {}
inline void release(const void*) {}
inline void acquire(const void*) {}
class Unchecked {
 public:
  Unchecked() {}
  ~Unchecked() {}
};
#endif

/// A suspended computation: one that started on its own stack, or the host thread itself.
class Context {
 public:
  Context() = default;  ///< stands for the calling host thread
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Gives the context a stack and the function to call when it is switched to for the first time. The function must
  /// never return. May be called again to abandon what the context was doing; what lies on its stack is not destroyed.
  void prepare(void (*entry)());

  /// Suspends the calling context, which must be `self`, and continues this one as the race checker's `race`.
  void switch_from(Context& self, RaceContext race);

 private:
  static void start(boost::context::detail::transfer_t from);
  void arrive(boost::context::detail::transfer_t from);

  boost::context::detail::fcontext_t machine_ = nullptr;
  void (*entry_)() = nullptr;
  char* memory_ = nullptr;        // guard page first
  const void* bottom_ = nullptr;  // for AddressSanitizer
  std::size_t size_ = 0;
  void* fake_stack_ = nullptr;
};

}  // namespace cuda_emulation
