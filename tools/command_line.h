// The program's subcommands and their options, without the option library's headers, which are slow to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace backplane::tools {

// One subcommand. The variables that options are bound to must live until CommandLine::run returns.
class Command {
 public:
  Command(Command&&) noexcept;
  ~Command();

  Command& flag(const std::string& names, bool& value, const std::string& help);
  // T: std::string, double, std::int64_t, std::uint32_t, std::uint64_t, or std::optional of one of them. A name without
  // dashes is a positional argument. `shown` names the value in the help.
  template <class T>
  Command& option(const std::string& names, T& value, const std::string& shown, const std::string& help);
  // May be given several times, one value each.
  Command& list(const std::string& names, std::vector<std::string>& values, const std::string& shown,
                const std::string& help);
  Command& choice(const std::string& names, std::string& value, const std::vector<std::string>& allowed,
                  const std::string& help);
  Command& required(const std::string& name);
  // At most one of these may be given.
  Command& only_one_of(const std::vector<std::string>& names);
  Command& example(const std::string& text);
  // What the command does; returns the exit status. Errors are thrown.
  void action(std::function<int()> work);

 private:
  friend class CommandLine;
  struct Impl;
  explicit Command(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class CommandLine {
 public:
  CommandLine(const std::string& description, const std::string& version);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  Command command(const std::string& name, const std::string& description);

  // Parses and runs the chosen command; prints help and returns 0 where that was asked for. Throws Error{kUsage} for
  // wrong arguments, and what the command throws.
  int run(int argc, const char* const* argv);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace backplane::tools
