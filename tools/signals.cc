#include "tools/signals.h"

#include <signal.h>
#include <unistd.h>

#include "core/base/error.h"

namespace backplane::tools {
namespace {

std::atomic<int> catching{0};
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free,
              "a signal handler may use no lock");

extern "C" void on_interrupt(int) {
  if (catching.load() > 0 && !interrupted.exchange(true)) return;
  constexpr char kLine[] = "\nbackplane: error: interrupted\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kLine, sizeof kLine - 1);
  ::_exit(static_cast<int>(ErrorCode::kInterrupted));
}

}  // namespace

void handle_interrupts() {
  struct sigaction action {};
  struct sigaction before {};
  // What was started in the background, or with nohup's like, keeps ignoring it.
  if (::sigaction(SIGINT, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) return;
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // not SA_RESTART: a read from the terminal has to return
  ::sigaction(SIGINT, &action, nullptr);
}

CatchInterrupts::CatchInterrupts() {
  if (catching.fetch_add(1) == 0) interrupted = false;
}

CatchInterrupts::~CatchInterrupts() {
  if (catching.fetch_sub(1) == 1) interrupted = false;
}

bool CatchInterrupts::pending() { return interrupted.load(); }
void CatchInterrupts::clear() { interrupted = false; }
const std::atomic<bool>& CatchInterrupts::flag() { return interrupted; }

void CatchInterrupts::check(std::string_view where) {
  if (pending()) throw Error(ErrorCode::kInterrupted, "interrupted", where);
}

}  // namespace backplane::tools
