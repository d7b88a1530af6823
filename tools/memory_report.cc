#include "tools/memory_report.h"

#include <fmt/format.h>

#include "tools/progress.h"

namespace backplane::tools {

std::string describe_memory(const models::MemoryEstimate& memory, std::uint32_t context) {
  return fmt::format("{} weights + {} KV for {} tokens + {} workspaces = {}", format_bytes(memory.weights),
                     format_bytes(memory.kv), context, format_bytes(memory.workspace), format_bytes(memory.total()));
}

}  // namespace backplane::tools
