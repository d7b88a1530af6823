#include "tools/report.h"

#include <cstdio>
#include <new>
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/error.h"
#include "tools/json_lines.h"

namespace backplane::tools {
namespace {

int report(ErrorCode code, const char* message, bool json) noexcept {
  std::fflush(stdout);
  std::fprintf(stderr, "backplane: error: %s\n", message);
  if (json) {
    try {
      std::puts(json_text(json_error(error_code_name(code), message)).c_str());
      std::fflush(stdout);
    } catch (...) {
      std::fputs("{\"error\": {\"code\": \"capacity\", \"message\": \"out of memory\"}}\n", stdout);
    }
  }
  return static_cast<int>(code);
}

}  // namespace

int report_errors(const std::function<int()>& work, bool json) noexcept {
  try {
    return work();
  } catch (const Error& error) {
    return report(error.code(), error.what(), json);
  } catch (const std::bad_alloc&) {
    return report(ErrorCode::kCapacity, "out of memory: free some, or ask for less (a smaller --ctx, a shorter input)",
                  json);
  } catch (const std::exception& error) {
    std::string message = error.what();
    for (char& c : message) c = static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    return report(ErrorCode::kInternal, ("internal: " + message).c_str(), json);
  } catch (...) {
    return report(ErrorCode::kInternal, "internal: unknown", json);
  }
}

}  // namespace backplane::tools
