// Runs another program without a shell.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace backplane::tools {

struct ProcessResult {
  int status = 0;      // exit status; 128 + the signal's number when a signal ended it
  std::string output;  // the last 64 KiB of its stdout and stderr together
};

// Finds arguments[0] in PATH. `environment` are "NAME=value" that replace or add to ours. Calls `tick` about ten times
// a second; when that throws, the program is terminated and the exception goes on. Throws Error{kBadFile} when the
// program can't be started.
ProcessResult run_process(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                          const std::function<void()>& tick);

}  // namespace backplane::tools
