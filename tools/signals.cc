#include "tools/signals.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/error.h"

namespace backplane::tools {
namespace {

std::atomic<int> catching{0};
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free,
              "a signal handler may use no lock");

int wake_ends[2] = {-1, -1};  // a pipe that has a byte in it while the flag is set

extern "C" void on_interrupt(int) {
  if (catching.load() > 0 && !interrupted.exchange(true)) {
    const int before = errno;
    [[maybe_unused]] const auto woken = ::write(wake_ends[1], "", 1);
    errno = before;
    return;
  }
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
  if (::pipe2(wake_ends, O_CLOEXEC | O_NONBLOCK) != 0) wake_ends[0] = wake_ends[1] = -1;
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // who waits for long watches wake_descriptor()
  ::sigaction(SIGINT, &action, nullptr);
}

CatchInterrupts::CatchInterrupts() {
  if (catching.fetch_add(1) == 0) clear();
}

CatchInterrupts::~CatchInterrupts() {
  if (catching.fetch_sub(1) == 1) clear();
}

bool CatchInterrupts::pending() { return interrupted.load(); }
int CatchInterrupts::wake_descriptor() { return wake_ends[0]; }

void CatchInterrupts::clear() {
  char bytes[16];
  while (::read(wake_ends[0], bytes, sizeof bytes) > 0) continue;
  interrupted = false;
}

const std::atomic<bool>& CatchInterrupts::flag() { return interrupted; }

void CatchInterrupts::check(std::string_view where) {
  if (pending()) throw Error(ErrorCode::kInterrupted, "interrupted", where);
}

}  // namespace backplane::tools
