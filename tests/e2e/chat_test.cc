// The conversation on a terminal, through a pseudo-terminal.
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "tests/e2e/program.h"

namespace backplane::test {
namespace {

class Terminal {
 public:
  explicit Terminal(const std::vector<std::string>& arguments) {
    std::vector<char*> argv;
    for (const std::string& each : arguments) argv.push_back(const_cast<char*>(each.c_str()));
    argv.push_back(nullptr);
    pid_ = ::forkpty(&end_, nullptr, nullptr, nullptr);
    if (pid_ == 0) {
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }
  ~Terminal() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(end_);
  }
  void type(const std::string& text) {
    EXPECT_EQ(::write(end_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // Waits until the screen shows `text` (after what was waited for before), and gives what came with it.
  std::string wait_for(const std::string& text) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    std::size_t found;
    while ((found = screen_.find(text, at_)) == std::string::npos) {
      if (std::chrono::steady_clock::now() > deadline || !read_some()) {
        ADD_FAILURE() << "no '" << text << "' in: " << screen_.substr(at_);
        return {};
      }
    }
    const std::string shown = screen_.substr(at_, found + text.size() - at_);
    at_ = found + text.size();
    return shown;
  }
  // Waits until so many more bytes are on the screen.
  void wait_for_more(std::size_t bytes) {
    while (screen_.size() < at_ + bytes && read_some()) continue;
    EXPECT_GE(screen_.size(), at_ + bytes);
  }
  int status() {
    while (read_some()) continue;
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  bool read_some() {
    pollfd waiting{end_, POLLIN, 0};
    if (::poll(&waiting, 1, 1000) == 0) return true;
    char buffer[4096];
    const ssize_t got = ::read(end_, buffer, sizeof buffer);
    if (got <= 0) return false;
    screen_.append(buffer, static_cast<std::size_t>(got));
    return true;
  }

  pid_t pid_ = -1;
  int end_ = -1;
  std::string screen_;
  std::size_t at_ = 0;
};

class Chat : public ProgramTest {};

TEST_F(Chat, KeepsItsCacheBetweenTurns) {
  Terminal terminal({BACKPLANE_PROGRAM, "run", model_, "-v", "-n", "8", "--temperature", "0"});
  terminal.wait_for("weights + ");
  terminal.wait_for("> ");
  terminal.type("hi\n");
  EXPECT_EQ(terminal.wait_for("; seed").find("kept"), std::string::npos);
  terminal.wait_for("> ");
  terminal.type("hi\n");
  terminal.wait_for("more kept");
  terminal.wait_for("> ");
  terminal.type("/reset\n");
  terminal.wait_for("anew");
  terminal.type("hi\n");
  terminal.wait_for("; seed");  // something may be kept here too: this text began a conversation before
  terminal.wait_for("> ");
  terminal.type("/nonsense\n");
  terminal.wait_for("no such command");
  terminal.type("/help\n");
  terminal.wait_for("/exit");
  terminal.type("/exit\n");
  EXPECT_EQ(terminal.status(), 0);
}

TEST_F(Chat, CtrlCStopsTheReplyAndNotTheChat) {
  const std::string model = write_model({.context = 65536}, "long.gguf");
  Terminal terminal(
      {BACKPLANE_PROGRAM, "run", model, "-n", "60000", "--ignore-eos", "--temperature", "0", "--ctx", "65536"});
  terminal.wait_for("> ");
  terminal.type("hi\n");
  terminal.wait_for("hi\r\n");
  terminal.wait_for_more(100);  // of the reply
  terminal.type("\x03");
  terminal.wait_for("[stopped]");
  terminal.wait_for("> ");
  terminal.type("\x03");
  terminal.wait_for("Ctrl-C again");
  terminal.type("\x03");
  EXPECT_EQ(terminal.status(), 0);
}

TEST_F(Chat, SurvivesAFullContext) {
  Terminal terminal({BACKPLANE_PROGRAM, "run", model_, "-n", "4", "--temperature", "0", "--ctx", "64"});
  terminal.wait_for("> ");
  terminal.type(std::string(100, 'x') + "\n");
  terminal.wait_for("longer than the context of 64");
  terminal.wait_for("> ");
  terminal.type("hi\n");
  terminal.wait_for("> ");
  terminal.type("\x04");
  EXPECT_EQ(terminal.status(), 0);
}

}  // namespace
}  // namespace backplane::test
