// The options of commands that serve many requests at once.
#pragma once

#include <cstdint>
#include <optional>

#include "core/engine/service.h"
#include "tools/command_line.h"
#include "tools/loaded_model.h"

namespace backplane::tools {

struct ServingOptions {
  std::uint32_t max_running = 32;
  std::uint32_t step_tokens = 512;
  std::optional<std::uint64_t> kv_tokens;

  // Throw Error{kUsage} for values that allow no work.
  models::LoadOptions load() const;
  // When the devices are open: the number of threads is then known.
  engine::ServiceOptions service(const OpenedModel& opened, std::size_t max_requests) const;
};
void add_options(Command& command, ServingOptions& options);

}  // namespace backplane::tools
