// How the program says that something went wrong.
#pragma once

#include <functional>

namespace backplane::tools {

// Runs the work and turns every exception into one line on stderr, with `json` also {"error": {"code", "message"}} on
// stdout, and an exit status.
int report_errors(const std::function<int()>& work, bool json) noexcept;

}  // namespace backplane::tools
