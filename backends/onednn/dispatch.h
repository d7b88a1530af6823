// From op codes to ops.
#pragma once

#include "backends/onednn/device.h"
#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::onednn {

// Fills `support`; throws plugin::Failure with the reason why not.
void answer_query(const Device& device, const bp_op_query& query, bp_support& support);

// Runs one op. Where the arguments are wrong it throws plugin::Failure before anything was written; of a fused op,
// before the part that they are wrong for.
void run_op(const Device& device, const bp_op& op);

}  // namespace backplane::onednn
