// The conversation on a terminal.
#pragma once

#include "tools/loaded_model.h"
#include "tools/run_options.h"

namespace backplane::tools {

// Reads lines from standard input and answers each, until Ctrl-D, /exit, or Ctrl-C twice at an empty prompt. The KV
// cache is kept between turns; Ctrl-C stops a reply, and what was said of it stays in the conversation. Must run inside
// a CatchInterrupts.
int chat_on_terminal(const RunOptions& options, const OpenedModel& opened);

}  // namespace backplane::tools
