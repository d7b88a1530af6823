#include "core/engine/request.h"

namespace backplane::engine {

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kError:
      return "error";
    case FinishReason::kCanceled:
      return "canceled";
  }
  return "";
}

}  // namespace backplane::engine
