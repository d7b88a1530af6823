// The one exception type of the core, and the exit status each kind of failure ends a program with.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace backplane {

// The values are the program's exit statuses.
enum class ErrorCode : int {
  kInternal = 1,      // a bug of ours
  kUsage = 2,         // a wrong flag or argument
  kBadFile = 3,       // a file that is broken, or asks for something we don't support
  kDevice = 4,        // a device or plugin that is absent, refused, or failed
  kCapacity = 5,      // not enough memory or context
  kCheckFailed = 6,   // a cross-check or conformance run found a fault
  kInterrupted = 130  // SIGINT
};

// "bad_file" for kBadFile and so on: the "code" of a JSON error.
std::string_view error_code_name(ErrorCode code);

// What went wrong, where (a file, a device, a field; may be empty) and what to do about it (may be empty).
// what() joins them as "WHAT: WHERE: WHAT TO DO".
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, std::string_view what, std::string_view where = {}, std::string_view what_to_do = {});

  ErrorCode code() const { return code_; }
  int exit_status() const { return static_cast<int>(code_); }

 private:
  ErrorCode code_;
};

// A device is gone for good, and with it all that it held: kDevice. Thrown by the call that noticed and by all later
// ones.
class DeviceLost : public Error {
 public:
  DeviceLost(std::string_view what, std::string_view where);

  // What happened and where, without the advice that what() ends with.
  const std::string& cause() const { return cause_; }

 private:
  std::string cause_;
};

}  // namespace backplane
