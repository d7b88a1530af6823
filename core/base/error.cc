#include "core/base/error.h"

namespace backplane {
namespace {

std::string join(std::string_view what, std::string_view where, std::string_view what_to_do) {
  std::string text(what);
  for (std::string_view part : {where, what_to_do}) {
    if (!part.empty()) text.append(": ").append(part);
  }
  // The message is one line on a terminal, whatever a hostile file put into a name.
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return text;
}

}  // namespace

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInternal:
      return "internal";
    case ErrorCode::kUsage:
      return "usage";
    case ErrorCode::kBadFile:
      return "bad_file";
    case ErrorCode::kDevice:
      return "device";
    case ErrorCode::kCapacity:
      return "capacity";
    case ErrorCode::kCheckFailed:
      return "check_failed";
    case ErrorCode::kInterrupted:
      return "interrupted";
  }
  return "internal";
}

Error::Error(ErrorCode code, std::string_view what, std::string_view where, std::string_view what_to_do)
    : std::runtime_error(join(what, where, what_to_do)), code_(code) {}

DeviceLost::DeviceLost(std::string_view what, std::string_view where)
    : Error(ErrorCode::kDevice, what, where, "the device is gone: restart on it, or choose another with --device"),
      cause_(join(what, where, {})) {}

}  // namespace backplane
