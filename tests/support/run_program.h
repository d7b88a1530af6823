// Runs the built program as a user does, and gives back what it printed.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/temp_folder.h"

namespace backplane::test {

struct ProgramRun {
  int status = -1;  // exit status; 128 + the number of the signal that ended it; -1: it took too long
  std::string out, err;
};

struct ProgramInput {
  std::string stdin_text = {};
  std::vector<std::pair<std::string, std::string>> environment = {};
  // Called with what is on stdout so far, every few milliseconds; true: the signal is sent, once.
  std::function<bool(const std::string& out)> interrupt_when = {};
  int signal = SIGINT;
  std::chrono::seconds timeout{120};
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// arguments[0] is the program.
inline ProgramRun run_program(const std::vector<std::string>& arguments, const ProgramInput& input = {}) {
  const TempFolder folder;
  const std::string in = folder.write("in", input.stdin_text).string();
  const std::string out = folder.write("out", "").string(), err = folder.write("err", "").string();
  std::vector<char*> argv;
  for (const std::string& each : arguments) argv.push_back(const_cast<char*>(each.c_str()));
  argv.push_back(nullptr);

  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error("can't fork");
  if (pid == 0) {
    ::signal(SIGINT, SIG_DFL);
    const auto redirect = [](const std::string& path, int flags, int to) {
      const int from = ::open(path.c_str(), flags);
      if (from < 0 || ::dup2(from, to) < 0) ::_exit(126);
    };
    redirect(in, O_RDONLY, 0);
    redirect(out, O_WRONLY, 1);
    redirect(err, O_WRONLY, 2);
    ::setenv("BACKPLANE_NO_TUNE", "1", 1);  // what one test leaves in the cache folder must not be another's setting
    for (const auto& [name, value] : input.environment) ::setenv(name.c_str(), value.c_str(), 1);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }

  ProgramRun run;
  bool interrupted = false;
  const auto deadline = std::chrono::steady_clock::now() + input.timeout;
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, &status, 0);
      run.err = "timed out\n";
      return run;
    }
    if (!interrupted && input.interrupt_when && input.interrupt_when(read_file(out))) {
      ::kill(pid, input.signal);
      interrupted = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  run.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  run.out = read_file(out);
  run.err = read_file(err);
  return run;
}

}  // namespace backplane::test
