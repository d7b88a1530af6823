#include "tools/memory_report.h"

#include <fmt/format.h>

#include "tools/progress.h"

namespace backplane::tools {

std::string describe_memory(const models::MemoryEstimate& memory, std::uint64_t tokens) {
  return fmt::format("{} weights + {} KV for {} tokens + {} workspaces = {}", format_bytes(memory.weights),
                     format_bytes(memory.kv), tokens, format_bytes(memory.workspace), format_bytes(memory.total()));
}

}  // namespace backplane::tools
