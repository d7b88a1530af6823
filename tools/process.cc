#include "tools/process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string_view>
#include <thread>

#include "core/base/error.h"

extern char** environ;

namespace backplane::tools {
namespace {

constexpr std::size_t kKept = std::size_t{64} << 10;
constexpr int kTickMilliseconds = 100;
constexpr std::chrono::seconds kGrace{5};

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { reset(); }
  int get() const { return value_; }
  void reset() {
    if (value_ >= 0) ::close(value_);
    value_ = -1;
  }

 private:
  int value_;
};

// A child that is terminated and reaped, whatever happens.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGTERM);
    const auto deadline = std::chrono::steady_clock::now() + kGrace;
    while (!reap(WNOHANG)) {
      if (std::chrono::steady_clock::now() > deadline) {
        ::kill(pid_, SIGKILL);
        reap(0);
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  // True when it has ended.
  bool reap(int options) {
    pid_t got = 0;
    do {
      got = ::waitpid(pid_, &status_, options);
    } while (got < 0 && errno == EINTR && options == 0);
    if (got == pid_) pid_ = -1;
    return pid_ < 0;
  }
  int exit_status() const { return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_); }

 private:
  pid_t pid_;
  int status_ = 0;
};

std::vector<std::string> merged_environment(const std::vector<std::string>& changes) {
  std::vector<std::string> merged = changes;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view ours = *entry;
    const std::string_view name = ours.substr(0, ours.find('=') + 1);
    const bool replaced =
        std::any_of(changes.begin(), changes.end(), [&](const std::string& each) { return each.starts_with(name); });
    if (!replaced) merged.emplace_back(ours);
  }
  return merged;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

pid_t spawn(const std::vector<std::string>& arguments, const std::vector<std::string>& environment, int output) {
  const std::vector<std::string> merged = merged_environment(environment);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, arguments.front().c_str(), &actions, nullptr, pointers(arguments).data(),
                                   pointers(merged).data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw Error(ErrorCode::kBadFile, std::string("can't start the program: ") + std::strerror(error), arguments.front(),
                "install it, or put it on PATH");
  }
  return pid;
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                          const std::function<void()>& tick) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw Error(ErrorCode::kCapacity, std::string("can't make a pipe: ") + std::strerror(errno));
  }
  Descriptor from(ends[0]), to(ends[1]);
  Child child(spawn(arguments, environment, to.get()));
  to.reset();

  ProcessResult result;
  char chunk[4096];
  while (true) {
    if (tick) tick();
    pollfd waiting{from.get(), POLLIN, 0};
    if (::poll(&waiting, 1, kTickMilliseconds) <= 0) continue;
    const ssize_t got = ::read(from.get(), chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    result.output.append(chunk, static_cast<std::size_t>(got));
    if (result.output.size() > 2 * kKept) result.output.erase(0, result.output.size() - kKept);
  }
  while (!child.reap(WNOHANG)) {
    if (tick) tick();
    std::this_thread::sleep_for(std::chrono::milliseconds(kTickMilliseconds / 10));
  }
  result.status = child.exit_status();
  return result;
}

}  // namespace backplane::tools
