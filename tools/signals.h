// Ctrl-C: by default it ends the program with status 130 and one line; inside a CatchInterrupts it sets a flag.
#pragma once

#include <atomic>
#include <string_view>

namespace backplane::tools {

// Installs the handler. Call once, before any thread starts.
void handle_interrupts();

// While one is alive, the first SIGINT only sets the flag; when a second one comes before the flag was cleared, the
// program ends at once. May be nested.
class CatchInterrupts {
 public:
  CatchInterrupts();
  ~CatchInterrupts();
  CatchInterrupts(const CatchInterrupts&) = delete;
  CatchInterrupts& operator=(const CatchInterrupts&) = delete;

  static bool pending();
  static void clear();
  static const std::atomic<bool>& flag();
  // Readable while the flag is set, for who waits with poll; -1 before handle_interrupts().
  static int wake_descriptor();
  // Throws Error{kInterrupted, "interrupted", where} when the flag is set.
  static void check(std::string_view where);
};

}  // namespace backplane::tools
