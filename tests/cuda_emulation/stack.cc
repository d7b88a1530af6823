#include "tests/cuda_emulation/stack.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(CUDA_EMULATION_TSAN)
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace cuda_emulation {

namespace fcontext = boost::context::detail;

namespace {

// Only pages that are touched cost memory. Instrumented frames are several times larger.
#if defined(__SANITIZE_ADDRESS__) || defined(CUDA_EMULATION_TSAN)
constexpr std::size_t kStackBytes = 512 << 10;
#else
constexpr std::size_t kStackBytes = 128 << 10;
#endif

struct Passage {
  Context *from, *to;
};

}  // namespace

#if defined(CUDA_EMULATION_TSAN)
RaceContext make_race_context() { return __tsan_create_fiber(0); }
RaceContext current_race_context() { return __tsan_get_current_fiber(); }
void destroy_race_context(RaceContext context) { __tsan_destroy_fiber(context); }
void become(RaceContext context) {
  if (context != __tsan_get_current_fiber()) __tsan_switch_to_fiber(context, __tsan_switch_to_fiber_no_sync);
}
Unchecked::Unchecked() {
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
Unchecked::~Unchecked() {
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
void release(const void* address) { __tsan_release(const_cast<void*>(address)); }
void acquire(const void* address) { __tsan_acquire(const_cast<void*>(address)); }
#endif

Context::~Context() {
  if (memory_ != nullptr) munmap(memory_, kStackBytes + static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
}

void Context::prepare(void (*entry)()) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (memory_ == nullptr) {
    void* memory =
        mmap(nullptr, kStackBytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<char*>(memory);
    mprotect(memory_, page, PROT_NONE);
    bottom_ = memory_ + page;
    size_ = kStackBytes;
  }
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(bottom_, size_);  // abandoned frames leave their red zones behind
#endif
  entry_ = entry;
  fake_stack_ = nullptr;
  machine_ = fcontext::make_fcontext(memory_ + page + kStackBytes, kStackBytes, &Context::start);
}

void Context::switch_from(Context& self, RaceContext race) {
  Passage passage{&self, this};
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&self.fake_stack_, bottom_, size_);
#endif
  become(race);
  self.arrive(fcontext::jump_fcontext(std::exchange(machine_, nullptr), &passage));
}

// Runs in the context that was continued: notes where the one that left can be found.
void Context::arrive(fcontext::transfer_t from) {
  Context& left = *static_cast<Passage*>(from.data)->from;
  left.machine_ = from.fctx;
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  std::size_t size = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &size);
  left.bottom_ = bottom;  // how the host thread's own stack becomes known
  left.size_ = size;
#endif
}

void Context::start(fcontext::transfer_t from) {
  Context& self = *static_cast<Passage*>(from.data)->to;
  self.arrive(from);
  self.entry_();
}

}  // namespace cuda_emulation
