// From op codes to ops.
#pragma once

#include <cstdint>

#include "plugins/sdk/backplane_plugin.hpp"

namespace backplane::cpu {

// Fills `support` for a device that computes in `real`, F32 or F64; throws plugin::Failure with the reason why not.
void answer_query(bp_type real, const bp_op_query& query, bp_support& support);

// Runs one op on such a device. Where the arguments are wrong it throws plugin::Failure before anything was written; of
// a fused op, before the part that they are wrong for.
void run_op(bp_type real, const bp_op& op);

}  // namespace backplane::cpu
